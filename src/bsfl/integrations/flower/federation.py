"""One run of a federation: a cohort is selected, its messages go out, its replies come in."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from flwr.app import DEFAULT_TTL, Message
from flwr.serverapp import Grid

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.message_exchange import MessageExchange
from bsfl.integrations.flower.nodes import Nodes
from bsfl.integrations.flower.summary import RoundSummary
from bsfl.rounds import Clock, RoundManager, pause_s
from bsfl.rounds.running import names
from bsfl.types import ClientId, Observation, RoundPlan

_LOG = logging.getLogger("flwr")


@dataclass(slots=True, kw_only=True)
class Evaluations:
    """Sends evaluation messages; a node is busy until it replies or its message expires.

    Attributes:
        grid: The federation.
        clock: The server's clock.
        check: Checks the content of replies.
    """

    grid: Grid
    clock: Clock
    check: ContentCheck
    _open: dict[str, tuple[int, float]] = field(default_factory=dict)  # node, when it expires
    _running: dict[str, int] = field(default_factory=dict)  # nodes of the running exchange
    _received: dict[str, Message] = field(default_factory=dict)

    @property
    def busy(self) -> set[int]:
        """The nodes that may still be evaluating."""
        return {node for node, _ in self._open.values()}

    def receive(self) -> None:
        """Receive replies; drop messages with a reply and those that have expired."""
        for reply in self.grid.pull_messages(list(self._open)) if self._open else ():
            token = reply.metadata.reply_to_message_id
            if self._open.pop(token, None) and token in self._running:
                self._received[token] = reply
        now = self.clock.monotonic()
        self._open = {
            token: (node, expires_at)
            for token, (node, expires_at) in self._open.items()
            if now < expires_at
        }

    def exchange(
        self,
        messages: list[Message],
        timeout_s: float | None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[Message]:
        """Send messages and return the replies that came in time and can be aggregated.

        Args:
            messages: Evaluation messages, one per node.
            timeout_s: Seconds after which the remaining replies are not waited for.
            meanwhile: Called between two polls.
        """
        if not messages:
            return []
        due_s = min(timeout_s or DEFAULT_TTL, DEFAULT_TTL)
        for message in messages:
            message.metadata.ttl = 2.0 * due_s
        start = self.clock.monotonic()
        pushed = set(self.grid.push_messages(messages))
        nodes = {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        sent = {token: node for token, node in nodes.items() if token in pushed}
        self._open |= {token: (node, start + 2.0 * due_s) for token, node in sent.items()}
        self._running, self._received = sent, {}
        while True:
            self.receive()
            waited_s = self.clock.monotonic() - start
            if len(self._received) == len(sent) or waited_s >= due_s:
                break
            meanwhile()
            self.clock.sleep(pause_s(waited_s, until=due_s))
        received, self._running, self._received = self._received, {}, {}
        if missing := [node for token, node in sent.items() if token not in received]:
            _LOG.info(
                "bsfl: evaluation ended after %.1f s without nodes %s", waited_s, names(missing)
            )
        return self._usable(list(received.values()))

    def _usable(self, replies: list[Message]) -> list[Message]:
        """Return the replies that do not corrupt the aggregation."""
        with_content = {k: reply for k, reply in enumerate(replies) if reply.has_content()}
        faults = {k: self.check.fault(reply) for k, reply in with_content.items()}
        unusable = {k: fault for k, fault in faults.items() if fault is not None}
        if self.check.weight_key is not None:
            rest = {k: reply for k, reply in with_content.items() if k not in unusable}
            unusable |= self.check.outliers(rest)
        for k, fault in unusable.items():
            node = replies[k].metadata.src_node_id
            _LOG.warning("bsfl: the evaluation of node %d is not used: %s", node, fault)
        return [reply for k, reply in enumerate(replies) if k not in unusable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(RoundPlan):
    """The numbers of a round, as the docstring of `Selected` explains them.

    Attributes:
        min_clients: How many clients must be connected before a round starts.
        min_free: How many clients that are not busy the wrapped strategy needs.
        wait_s: Seconds to wait for them.
    """

    max_wait_s: float = DEFAULT_TTL
    min_clients: int
    min_free: int
    wait_s: float

    def __post_init__(self) -> None:
        RoundPlan.__post_init__(self)
        validation.natural("min_clients", self.min_clients)
        validation.at_least("wait_s", self.wait_s, 0.0)


@dataclass(slots=True, kw_only=True)
class Federation:
    """The state of one run of a federation.

    Attributes:
        rounds: Follows the rounds of the scheduler; its tokens are the ids of messages.
        nodes: The connected nodes.
        messages: Sends messages and turns replies into observations.
        evaluations: Sends evaluation messages.
        plan: Returns the numbers of a round.
        cohort: The clients of this round by their nodes.
    """

    rounds: RoundManager[str]
    nodes: Nodes
    messages: MessageExchange
    evaluations: Evaluations
    plan: Callable[[int], Limits]
    cohort: dict[int, ClientId] = field(default_factory=dict)
    _server_round: int = 0
    _reasons: dict[ClientId, str] = field(default_factory=dict)

    @property
    def grid(self) -> Grid:
        return self.nodes.grid

    # --- selection ------------------------------------------------------------------------------

    def select(self, server_round: int) -> list[int]:
        """Open a round as soon as there are enough clients; return the nodes of its cohort."""
        rounds, limits = self.rounds, self.plan(server_round)
        self._server_round, rounds.plan = server_round, limits
        node_of = self.nodes.wait(
            self._busy,
            min_clients=limits.min_clients,
            min_free=limits.min_free,
            wait_s=limits.wait_s,
            pause=rounds.clock.sleep,
            is_settled=lambda: rounds.clock.monotonic() >= rounds.invitations.settled_at,
        )
        rounds.seen.difference_update(self.nodes.remove_absent())
        self.cohort = {node_of[client]: client for client in rounds.open(set(node_of))}
        self.nodes.registry.mark_invited(self.cohort)
        return list(self.cohort)

    def free(self) -> list[int]:
        """Return the nodes of the clients that are connected and not busy."""
        busy = self._busy()
        return [node for node in self.nodes.connected().values() if node not in busy]

    def _busy(self) -> set[int]:
        """Receive replies; return the nodes that are still training or evaluating."""
        self._receive()
        self.evaluations.receive()
        training = {self.messages.node_of[token] for token in self.rounds.invitations.tokens}
        return training | self.evaluations.busy

    # --- the exchange ---------------------------------------------------------------------------

    def exchange(
        self, messages: list[Message], timeout: float | None
    ) -> tuple[list[Message], RoundSummary]:
        """Send a round's messages; return the replies to aggregate once the round is over."""
        start = self.rounds.clock.monotonic()
        self._reasons = {}
        sent = self._send(messages, self.rounds.plan.expiry_s(timeout))
        self.rounds.sent(sent, at=start, timeout_s=timeout)
        tokens = set(sent.values())
        replies: dict[str, Message] = {}
        while True:
            replies |= {token: r for token, r in self._receive().items() if token in tokens}
            if self.rounds.is_over():
                break
            self.rounds.clock.sleep(self.rounds.pause_s())
        result = asdict(self.rounds.close())
        summary = RoundSummary(server_round=self._server_round, reasons=self._reasons, **result)
        kept = {client: replies[sent[client]] for client in summary.kept}
        if self.messages.check.weight_key is not None:
            outliers = self.messages.check.outliers(kept)
            for client, reason in outliers.items():
                _LOG.warning("bsfl: the reply of %r is not used: %s", client, reason)
            kept = {client: reply for client, reply in kept.items() if client not in outliers}
            summary = summary.without(outliers)
        errors = [reply for reply in replies.values() if reply.has_error()]
        return [*kept.values(), *errors], summary

    def _send(self, messages: list[Message], lifetime_s: float) -> dict[ClientId, str]:
        """Send messages to the cohort; return the ids of those that were sent, by client."""
        for message in messages:
            if message.metadata.dst_node_id not in self.cohort:
                raise InvalidInput(
                    "training messages must go to the nodes that were selected for this round, got "
                    f"one to node {message.metadata.dst_node_id}"
                )
        sent = self.messages.send(messages, lifetime_s)
        return {self.cohort[node]: token for node, token in sent.items()}

    def _receive(self) -> dict[str, Message]:
        """Receive replies to this round and to earlier ones, and record them; return them."""
        replies = self.messages.receive(self.rounds.invitations.tokens)
        self.rounds.record({token: self._observation(token, r) for token, r in replies.items()})
        for token, reply in replies.items():
            if renamed := self.nodes.rename_from(self.messages.node_of[token], reply):
                before, after = renamed
                self.rounds.seen.discard(before)
                self.rounds.seen.update(() if after is None else [after])
        return replies

    def _observation(self, token: str, reply: Message) -> Observation:
        invitation = self.rounds.invitations[token]
        round_trip_s = self.rounds.invitations.waited_s(invitation)
        client = invitation.client
        observation, reason = self.messages.observation(client, token, reply, round_trip_s)
        if reason is not None:
            self._reasons[client] = reason
            if not reply.has_error():  # Flower logs errors
                _LOG.warning("bsfl: the reply of %r is not used: %s", client, reason)
        return observation
