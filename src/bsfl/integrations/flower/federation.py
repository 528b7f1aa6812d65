"""One run of a federation: a cohort is chosen, its messages go out, its replies come in.

`bsfl.rounds` does the rest.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from flwr.app import DEFAULT_TTL, Message, MetricRecord

from bsfl import checks
from bsfl.clients import ClientId
from bsfl.errors import InvalidInput, NotEnoughClients
from bsfl.integrations.flower.directory import Directory, Presence
from bsfl.integrations.flower.identity import told_name
from bsfl.integrations.flower.wire import Wire
from bsfl.records import Observation
from bsfl.rounds import ClosedRound, RoundPlan, Rounds, pause_s

_LOG = logging.getLogger("flwr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(RoundPlan):
    """The numbers of a round; the docstring of `Selected` tells what they mean.

    Attributes:
        min_free: How many clients that are not busy the wrapped strategy needs.
    """

    longest_s: float = DEFAULT_TTL
    min_clients: int
    min_free: int
    wait_s: float

    def __post_init__(self) -> None:
        RoundPlan.__post_init__(self)
        checks.natural("min_clients", self.min_clients)
        checks.at_least("wait_s", self.wait_s, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary(ClosedRound):
    """One training round.

    Attributes:
        server_round: Flower's number of the round.
        reasons: Why clients failed, of those that said so.
    """

    server_round: int
    reasons: dict[ClientId, str] = field(default_factory=dict)

    def metrics(self) -> MetricRecord:
        client = self.slowest
        return MetricRecord(
            {
                "bsfl-cohort": len(self.cohort),
                "bsfl-kept": len(self.kept),
                "bsfl-round-s": self.duration_s,
                "bsfl-slowest-s": self.duration_s if client is None else self.latencies[client],
                "bsfl-timeouts": len(self.timeouts),
                "bsfl-failed": len(self.failed),
                "bsfl-late": self.n_late,
                "bsfl-fleet-seen": self.n_seen / max(self.n_fleet, 1),
            }
        )

    def without(self, faults: Mapping[ClientId, str]) -> "RoundSummary":
        """Return the round as it was if these clients have failed after all."""
        return replace(
            self,
            kept=tuple(client for client in self.kept if client not in faults),
            failed=(*self.failed, *faults),
            reasons={**self.reasons, **faults},
        )


@dataclass(slots=True, kw_only=True)
class Federation:
    """Everything that one run of a federation has to remember.

    Attributes:
        rounds: Chooses, waits and tells the scheduler; invitations go by the ids of messages.
        limits: How many clients a round needs, and the numbers of a round.
        wire: Sends messages and judges replies.
        directory: Who is behind the nodes.
        presence: Who has been away for how long.
        cohort: The clients of this round by their nodes.
    """

    rounds: Rounds[str]
    limits: Limits
    wire: Wire
    directory: Directory
    presence: Presence
    cohort: dict[int, ClientId] = field(default_factory=dict)
    _reasons: dict[ClientId, str] = field(default_factory=dict)

    # --- choosing -------------------------------------------------------------------------------

    def choose(self) -> list[int]:
        """Start a round: wait until there are clients, return the nodes of those chosen."""
        node_of = self._wait_for_clients()
        self._say_goodbye()
        self.cohort = {node_of[client]: client for client in self.rounds.open(set(node_of))}
        self.directory.invite(self.cohort)
        return list(self.cohort)

    def _say_goodbye(self) -> None:
        """Take clients out of the fleet that have been away for long."""
        scheduler = self.rounds.scheduler
        left = self.presence.left(scheduler.clients, self.directory.clients())
        if left:
            scheduler.leave(left)
            self.rounds.seen.difference_update(left)
            self.directory.forget(set(left))
            _LOG.info("bsfl: %d clients are gone and have left, among them %r", len(left), left[0])

    def _wait_for_clients(self) -> dict[ClientId, int]:
        """Return the nodes of all clients that can be invited, as soon as there are enough."""
        clock, limits, invitations = self.rounds.clock, self.limits, self.rounds.invitations
        start = clock.monotonic()
        n_before = -1
        while True:
            self._listen()
            online = set(self.wire.grid.get_node_ids())
            self.directory.update(self.wire.grid, online)
            clients = self.directory.clients()
            busy = {self.wire.node_of[token] for token in invitations.tokens}
            free = {client: node for client, node in clients.items() if node not in busy}
            is_enough = len(clients) >= limits.min_clients and len(free) >= limits.min_free
            now = clock.monotonic()
            is_late = now - start >= limits.wait_s
            if is_enough and (is_late or not self.directory.is_waiting()):
                return free
            too_few_without_stragglers = len(clients) < limits.min_clients
            if is_late and (too_few_without_stragglers or now >= invitations.settled_at):
                n_named = self.directory.n_named
                raise self._too_few(now - start, len(online), n_named, len(clients), len(free))
            if n_before != (n_before := len(clients)):
                _LOG.info(
                    "bsfl: waiting; %d of %d nodes have said who they are, at least %d must",
                    n_before,
                    len(online),
                    limits.min_clients,
                )
            clock.sleep(pause_s(clock.monotonic() - start))

    def _too_few(
        self, waited_s: float, n_online: int, n_named: int, n_clients: int, n_free: int
    ) -> NotEnoughClients:
        shared = f" as {n_clients} clients" if n_clients < n_named else ""
        return NotEnoughClients(
            f"waited {waited_s:.0f} s for {self.limits.min_clients} clients "
            f"({self.limits.min_free} of them free): {n_online} nodes are connected, "
            f"{n_named} have said who they are{shared}, {n_free} are free"
        )

    # --- the exchange ---------------------------------------------------------------------------

    def exchange(
        self, server_round: int, messages: list[Message], timeout: float | None
    ) -> tuple[list[Message], RoundSummary]:
        """Send a round's messages; return the replies to aggregate once the round is over."""
        start = self.rounds.clock.monotonic()
        self._reasons = {}
        sent = self._send(messages, self.limits.expiry_s(timeout))
        self.rounds.sent(sent, at=start, timeout_s=timeout)
        mine = set(sent.values())
        replies: dict[str, Message] = {}
        while True:
            replies |= {token: r for token, r in self._listen().items() if token in mine}
            if self.rounds.is_over():
                break
            self.rounds.clock.sleep(self.rounds.pause_s())
        closed = self.rounds.close()
        summary = RoundSummary(server_round=server_round, reasons=self._reasons, **asdict(closed))
        trained = {client: replies[sent[client]] for client in closed.kept}
        if self.wire.check.weight_key is not None:
            odd = self.wire.check.odd_ones(trained)
            for client, reason in odd.items():
                _LOG.warning("bsfl: the answer of %r is not used: %s", client, reason)
            trained = {client: reply for client, reply in trained.items() if client not in odd}
            summary = summary.without(odd)
        errors = [reply for reply in replies.values() if reply.has_error()]
        return [*trained.values(), *errors], summary

    def _send(self, messages: list[Message], lifetime_s: float) -> dict[ClientId, str]:
        """Send messages to the cohort; return the ids of those that went out by their clients."""
        for message in messages:
            if message.metadata.dst_node_id not in self.cohort:
                raise InvalidInput(
                    "training messages must go to the nodes that were chosen for this round, got "
                    f"one to node {message.metadata.dst_node_id}"
                )
        sent = self.wire.send(messages, lifetime_s)
        return {self.cohort[node]: token for node, token in sent.items()}

    def _listen(self) -> dict[str, Message]:
        """Hear what came in, for this round and for earlier ones; return the replies."""
        replies = self.wire.receive(self.rounds.invitations.tokens)
        self.rounds.hear({token: self._observation(token, r) for token, r in replies.items()})
        self._learn_names(replies)
        return replies

    def _observation(self, token: str, reply: Message) -> Observation:
        invitation = self.rounds.invitations[token]
        round_trip_s = self.rounds.invitations.waited_s(invitation)
        seen, reason = self.wire.observation(invitation.client, token, reply, round_trip_s)
        if reason is not None:
            self._reasons[invitation.client] = reason
            if not reply.has_error():  # Flower tells of errors
                _LOG.warning("bsfl: the answer of %r is not used: %s", invitation.client, reason)
        return seen

    def _learn_names(self, replies: dict[str, Message]) -> None:
        """Read in replies who their senders are: who went by a node id has another name now."""
        key, scheduler, seen = self.directory.reply_key, self.rounds.scheduler, self.rounds.seen
        if key is None:
            return
        for token, reply in replies.items():
            node = self.wire.node_of[token]
            if renamed := self.directory.hear(node, told_name(reply, key)):
                before, after = renamed
                scheduler.leave([before])
                seen.discard(before)
                if self.directory.holds(after, node):
                    scheduler.join([after])
                    seen.add(after)
