"""One run of a federation: a cohort is chosen, its messages go out, its replies come in."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from flwr.app import DEFAULT_TTL, Message
from flwr.serverapp import Grid

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.nodes import Nodes
from bsfl.integrations.flower.summary import RoundSummary
from bsfl.integrations.flower.wire import Wire
from bsfl.records import Observation
from bsfl.rounds import Clock, RoundPlan, Rounds, pause_s
from bsfl.rounds.round import names
from bsfl.scheduling.clients import ClientId

_LOG = logging.getLogger("flwr")


@dataclass(slots=True, kw_only=True)
class Evaluations:
    """Sends evaluation messages, and remembers who has not answered: it is still busy.

    Attributes:
        grid: The federation.
        clock: The server's.
        check: What a reply must hold.
    """

    grid: Grid
    clock: Clock
    check: ContentCheck
    _open: dict[str, tuple[int, float]] = field(default_factory=dict)  # node, when it expires
    _awaited: dict[str, int] = field(default_factory=dict)  # nodes of the exchange that is running
    _came: dict[str, Message] = field(default_factory=dict)

    @property
    def busy(self) -> set[int]:
        """The nodes that may still be evaluating."""
        return {node for node, _ in self._open.values()}

    def listen(self) -> None:
        """Take in the replies that came; forget who has answered and what has expired."""
        for reply in self.grid.pull_messages(list(self._open)) if self._open else ():
            token = reply.metadata.reply_to_message_id
            if self._open.pop(token, None) and token in self._awaited:
                self._came[token] = reply
        now = self.clock.monotonic()
        self._open = {token: one for token, one in self._open.items() if now < one[1]}

    def exchange(
        self,
        messages: list[Message],
        timeout_s: float | None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[Message]:
        """Send messages and return the replies that came in time and can be aggregated.

        Args:
            messages: To whom it may concern.
            timeout_s: Seconds after which nobody is waited for any more.
            meanwhile: What to do while waiting.
        """
        if not messages:
            return []
        due_s = min(timeout_s or DEFAULT_TTL, DEFAULT_TTL)
        for message in messages:
            message.metadata.ttl = 2.0 * due_s
        start = self.clock.monotonic()
        went_out = set(self.grid.push_messages(messages))
        nodes = {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        waiting = {token: node for token, node in nodes.items() if token in went_out}
        self._open |= {token: (node, start + 2.0 * due_s) for token, node in waiting.items()}
        self._awaited, self._came = waiting, {}
        while True:
            self.listen()
            waited_s = self.clock.monotonic() - start
            if len(self._came) == len(waiting) or waited_s >= due_s:
                break
            meanwhile()
            self.clock.sleep(pause_s(waited_s, until=due_s))
        came, self._awaited, self._came = self._came, {}, {}
        if missing := [node for token, node in waiting.items() if token not in came]:
            _LOG.info(
                "bsfl: evaluation ended after %.1f s without nodes %s", waited_s, names(missing)
            )
        return self._usable(list(came.values()))

    def _usable(self, replies: list[Message]) -> list[Message]:
        """Return the replies that do not spoil the aggregation."""
        answers = {k: reply for k, reply in enumerate(replies) if reply.has_content()}
        faults = {k: self.check.fault(reply) for k, reply in answers.items()}
        spoilt = {k: fault for k, fault in faults.items() if fault is not None}
        if self.check.weight_key is not None:
            rest = {k: reply for k, reply in answers.items() if k not in spoilt}
            spoilt |= self.check.odd_ones(rest)
        for k, fault in spoilt.items():
            node = replies[k].metadata.src_node_id
            _LOG.warning("bsfl: the evaluation of node %d is not used: %s", node, fault)
        return [reply for k, reply in enumerate(replies) if k not in spoilt]


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


@dataclass(slots=True, kw_only=True)
class Federation:
    """Everything that one run of a federation has to remember.

    Attributes:
        rounds: Chooses, waits and tells the scheduler; invitations go by the ids of messages.
        nodes: Who is connected.
        wire: Sends messages and judges replies.
        evaluations: Asks clients to evaluate.
        plan: Returns the numbers of a round.
        cohort: The clients of this round by their nodes.
    """

    rounds: Rounds[str]
    nodes: Nodes
    wire: Wire
    evaluations: Evaluations
    plan: Callable[[int], Limits]
    cohort: dict[int, ClientId] = field(default_factory=dict)
    _server_round: int = 0
    _reasons: dict[ClientId, str] = field(default_factory=dict)

    @property
    def grid(self) -> Grid:
        return self.nodes.grid

    # --- choosing -------------------------------------------------------------------------------

    def choose(self, server_round: int) -> list[int]:
        """Start a round: wait until there are clients, return the nodes of those chosen."""
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
        rounds.seen.difference_update(self.nodes.say_goodbye())
        self.cohort = {node_of[client]: client for client in rounds.open(set(node_of))}
        self.nodes.directory.invite(self.cohort)
        return list(self.cohort)

    def free(self) -> list[int]:
        """Return the nodes of the clients that are connected and not busy."""
        busy = self._busy()
        return [node for node in self.nodes.look().values() if node not in busy]

    def _busy(self) -> set[int]:
        """Hear what came in; return the nodes that still work on something."""
        self._listen()
        self.evaluations.listen()
        training = {self.wire.node_of[token] for token in self.rounds.invitations.tokens}
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
        mine = set(sent.values())
        replies: dict[str, Message] = {}
        while True:
            replies |= {token: r for token, r in self._listen().items() if token in mine}
            if self.rounds.is_over():
                break
            self.rounds.clock.sleep(self.rounds.pause_s())
        closed = asdict(self.rounds.close())
        summary = RoundSummary(server_round=self._server_round, reasons=self._reasons, **closed)
        trained = {client: replies[sent[client]] for client in summary.kept}
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
        for token, reply in replies.items():
            if renamed := self.nodes.hear(self.wire.node_of[token], reply):
                before, after = renamed
                self.rounds.seen.discard(before)
                self.rounds.seen.update(() if after is None else [after])
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
