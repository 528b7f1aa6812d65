"""The rounds of one run: choose, invite, listen, tell the scheduler."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from bsfl.clients import ClientId
from bsfl.errors import NotEnoughClients
from bsfl.integrations.flower.clock import Clock, pause_s
from bsfl.integrations.flower.identity import Directory
from bsfl.integrations.flower.invitations import Answer, Invitation, Invitations
from bsfl.integrations.flower.latency import Stopwatch, metric
from bsfl.integrations.flower.limits import Limits
from bsfl.integrations.flower.summary import RoundSummary
from bsfl.records import Observation, Outcome
from bsfl.scheduler import Scheduler

_LOG = logging.getLogger("flwr")


@dataclass(slots=True)
class Ledger:
    """What has happened so far in the round that is running.

    Attributes:
        invited: The messages that went out.
        answers: The answers to them, in the order in which they came.
        latencies: Seconds each client took that has trained.
    """

    invited: list[Invitation] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    latencies: dict[ClientId, float] = field(default_factory=dict)

    @property
    def missing(self) -> list[Invitation]:
        """Who has not answered yet."""
        answered = {answer.invitation for answer in self.answers}
        return [invitation for invitation in self.invited if invitation not in answered]

    def who(self, outcome: Outcome) -> tuple[ClientId, ...]:
        """Return the clients whose answer had this outcome, in the order in which they came."""
        return tuple(a.invitation.client for a in self.answers if a.outcome == outcome)


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Everything that one run of a federation has to remember.

    Attributes:
        scheduler: Chooses, and is told what became of every invitation, once.
        limits: The numbers of a round.
        grid: The federation.
        directory: Who is behind the nodes.
        stopwatch: Turns replies into latencies.
        invitations: Messages that are on their way.
        clock: The server's.
        samples_key: Metric with a client's number of samples, None if there is none.
        loss_key: Metric with a client's loss, None if there is none.
        cohort: The clients of this round by their nodes.
        seen: Who has answered so far.
        n_late: Answers to earlier rounds that came since the last summary.
    """

    scheduler: Scheduler
    limits: Limits
    grid: Grid
    directory: Directory
    stopwatch: Stopwatch
    invitations: Invitations
    clock: Clock
    samples_key: str | None = None
    loss_key: str | None = None
    cohort: dict[int, ClientId] = field(default_factory=dict)
    seen: set[ClientId] = field(default_factory=set)
    n_late: int = 0

    # --- choosing -------------------------------------------------------------------------------

    def choose(self) -> list[int]:
        """Start a round: wait until there are clients, return the nodes of those chosen."""
        node_of = self._wait_for_clients()
        n_invited = min(self.limits.n_invited, len(node_of))
        chosen = self.scheduler.select(available=set(node_of), cohort_size=n_invited)
        self.cohort = {node_of[client]: client for client in chosen}
        return list(self.cohort)

    def _wait_for_clients(self) -> dict[ClientId, int]:
        """Return the nodes of all clients that can be invited, as soon as there are enough."""
        start = self.clock.monotonic()
        n_before = -1
        while True:
            self._listen(Ledger())
            online = set(self.grid.get_node_ids())
            self.directory.update(self.grid, online)
            clients = self.directory.clients(online)
            busy = self.invitations.busy
            free = {client: node for client, node in clients.items() if node not in busy}
            is_enough = (
                len(clients) >= self.limits.min_clients and len(free) >= self.limits.min_free
            )
            now = self.clock.monotonic()
            is_late = now - start >= self.limits.wait_s
            if is_enough and (is_late or not self.directory.is_waiting(online)):
                return free
            too_few_without_stragglers = len(clients) < self.limits.min_clients
            if is_late and (too_few_without_stragglers or now >= self.invitations.settled_at):
                raise self._too_few(now - start, online, clients, free)
            if n_before != (n_before := len(clients)):
                _LOG.info(
                    "bsfl: waiting; %d of %d nodes have said who they are, at least %d must",
                    n_before,
                    len(online),
                    self.limits.min_clients,
                )
            self.clock.sleep(pause_s(self.clock.monotonic() - start))

    def _too_few(
        self,
        waited_s: float,
        online: Collection[int],
        clients: Collection[ClientId],
        free: Collection[ClientId],
    ) -> NotEnoughClients:
        limits, n_named = self.limits, self.directory.n_named(online)
        shared = f" as {len(clients)} clients" if len(clients) < n_named else ""
        return NotEnoughClients(
            f"waited {waited_s:.0f} s for {limits.min_clients} clients "
            f"({limits.min_free} of them free): {len(online)} nodes are connected, "
            f"{n_named} have said who they are{shared}, {len(free)} are free"
        )

    # --- the exchange ---------------------------------------------------------------------------

    def exchange(
        self, server_round: int, messages: list[Message], timeout: float | None
    ) -> tuple[list[Message], RoundSummary]:
        """Send a round's messages; return the replies to aggregate once the round is over."""
        start = self.clock.monotonic()
        due_s, expiry_s = self.limits.due_s(timeout), self.limits.expiry_s(timeout)
        invited = self.invitations.send(messages, self.cohort, due_s=due_s, lifetime_s=expiry_s)
        ledger = Ledger(invited)
        while True:
            self._listen(ledger)
            waited = self.clock.monotonic() - start
            if self._is_over(ledger, waited, due_s, min(expiry_s, timeout or expiry_s)):
                break
            self.clock.sleep(pause_s(waited, until=due_s))
        late = ledger.missing if waited >= due_s else []
        self._tell((invitation, self._timeout(invitation)) for invitation in late)
        unsent = set(self.cohort.values()) - {invitation.client for invitation in invited}
        self.scheduler.observe({client: Observation(outcome="failed") for client in unsent})
        summary = self._summary(server_round, ledger, late, unsent, waited)
        trained = [answer.reply for answer in ledger.answers if answer.outcome == "ok"]
        errors = [answer.reply for answer in ledger.answers if answer.outcome != "ok"]
        return trained[: self.limits.cohort_size] + errors, summary

    def _summary(
        self,
        server_round: int,
        ledger: Ledger,
        late: Iterable[Invitation],
        unsent: Iterable[ClientId],
        waited: float,
    ) -> RoundSummary:
        """Return what the round was like."""
        n_late, self.n_late = self.n_late, 0
        return RoundSummary(
            server_round=server_round,
            cohort=tuple(self.cohort.values()),
            kept=ledger.who("ok")[: self.limits.cohort_size],
            timeouts=(*ledger.who("timeout"), *(invitation.client for invitation in late)),
            failed=(*ledger.who("failed"), *unsent),
            latencies=ledger.latencies,
            duration_s=waited,
            n_late=n_late,
            n_seen=len(self.seen),
            n_fleet=len(self.scheduler.clients),
        )

    def _is_over(self, ledger: Ledger, waited: float, due_s: float, limit_s: float) -> bool:
        """Return whether a round has all it needs, or has waited long enough."""
        n_ok = len(ledger.latencies)
        return (
            n_ok >= self.limits.cohort_size
            or len(ledger.answers) == len(ledger.invited)
            or (waited >= due_s and n_ok >= self.limits.quorum)
            or waited >= limit_s
        )

    def _listen(self, ledger: Ledger) -> None:
        """Hear what came in, for this round and for earlier ones."""
        told = []
        for answer in self.invitations.answers():
            seen = self._observation(answer)
            told.append((answer.invitation, seen))
            if answer.invitation not in ledger.invited:
                self.n_late += answer.outcome == "ok"
                continue
            ledger.answers.append(answer)
            if seen.outcome == "ok" and seen.latency is not None:
                ledger.latencies[answer.invitation.client] = seen.latency
        late = [one for one in self.invitations.overdue() if one not in ledger.invited]
        self._tell([*told, *((invitation, self._timeout(invitation)) for invitation in late)])

    # --- telling the scheduler ------------------------------------------------------------------

    def _observation(self, answer: Answer) -> Observation:
        """Return what a reply shows."""
        client, reply = answer.invitation.client, answer.reply
        if answer.outcome != "ok":
            return Observation(latency=answer.round_trip_s, outcome=answer.outcome)
        self.seen.add(client)
        n_samples = metric(reply, self.samples_key) or 0
        return Observation(
            latency=self.stopwatch.latency(client, reply, answer.round_trip_s),
            loss=metric(reply, self.loss_key),
            samples=int(n_samples) if n_samples >= 1 else None,
        )

    def _timeout(self, invitation: Invitation) -> Observation:
        """Return what silence shows."""
        waited = self.clock.monotonic() - invitation.sent_at
        return Observation(latency=waited, outcome="timeout")

    def _tell(self, told: Iterable[tuple[Invitation, Observation]]) -> None:
        """Tell the scheduler what became of invitations, except of those that it knows of."""
        batch: dict[ClientId, Observation] = {}
        for invitation, seen in told:
            if invitation.is_reported:
                continue
            invitation.is_reported = True
            if invitation.client in batch:  # it was restarted and invited twice
                self.scheduler.observe(batch)
                batch = {}
            batch[invitation.client] = seen
        self.scheduler.observe(batch)
