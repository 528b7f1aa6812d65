"""Training without a barrier on a grid: whoever ends makes room for the next one."""

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from flwr.app import Message

from bsfl.integrations.flower.federation import Evaluations, Limits
from bsfl.integrations.flower.nodes import Nodes
from bsfl.integrations.flower.summary import VersionSummary
from bsfl.integrations.flower.wire import Wire
from bsfl.records import Observation
from bsfl.rounds import Buffer, BufferPlan, Clock, Invitation, Invitations, pause_s
from bsfl.scheduling.clients import ClientId

Write = Callable[[list[int]], list[Message]]
"""Returns messages that train some nodes on the model as it is now."""

A_MOMENT_S = 0.001

_LOG = logging.getLogger("flwr")


@dataclass(slots=True, kw_only=True)
class Heard:
    """What came in since the last version.

    Attributes:
        began_at: When that was.
        timeouts, failed: Who was given up, who failed.
        reasons: Why.
        errors: Replies that are errors.
        n_late: How many answered after they were given up.
        n_lost: How many were lost since the last answer that is of use.
    """

    began_at: float
    timeouts: list[ClientId] = field(default_factory=list)
    failed: list[ClientId] = field(default_factory=list)
    reasons: dict[ClientId, str] = field(default_factory=dict)
    errors: list[Message] = field(default_factory=list)
    n_late: int = 0
    n_lost: int = 0


@dataclass(slots=True, kw_only=True)
class Answer:
    """A reply that trained: whose, how long it took, and on which version."""

    client: ClientId
    reply: Message
    latency_s: float
    base: int


@dataclass(slots=True, kw_only=True)
class AsyncRun:
    """Keeps clients at work and collects what they send.

    Attributes:
        nodes: Who is connected.
        wire: Sends messages and judges replies.
        evaluations: Asks clients to evaluate.
        clock: On which training takes time.
        plan: How many are at work, and how many answers make a version.
        limits: When an answer is overdue, and its message expired.
        timeout_s: Seconds after which a client is given up at the latest.
        buffer: Answers for the next version.
        heard: What came in since the last one.
    """

    nodes: Nodes
    wire: Wire
    evaluations: Evaluations
    clock: Clock
    plan: BufferPlan
    limits: Limits
    buffer: Buffer[Answer]
    heard: Heard
    timeout_s: float | None = None
    invitations: Invitations[str]
    _base_of: dict[str, int] = field(default_factory=dict)
    _inbox: deque[Answer] = field(default_factory=deque)
    _seen: set[ClientId] = field(default_factory=set)

    @property
    def versions_in_use(self) -> set[int]:
        """The versions that somebody works on, or whose answers wait."""
        waiting = {answer.base for answer in self._inbox}
        return waiting | {self._base_of[token] for token in self.invitations.tokens}

    def wait_for_clients(self, min_clients: int) -> None:
        """Wait until so many are connected, one of them free."""
        self.nodes.wait(
            self._busy,
            min_clients=min_clients,
            min_free=1,
            wait_s=self.limits.wait_s,
            pause=self.clock.sleep,
            is_settled=lambda: self.clock.monotonic() >= self.invitations.settled_at,
        )

    def collect(self, write: Write) -> list[tuple[Answer, int]]:
        """Return the answers of the next version with their staleness.

        There are `buffer` of them, or fewer if as many clients in a row were lost as are at work.
        """
        while True:
            self.listen()
            while self._inbox and not self.buffer.is_full:
                answer = self._inbox.popleft()
                self.buffer.add(answer, base=answer.base)
            if self.buffer.is_full or self.heard.n_lost >= self.plan.concurrency:
                return self.buffer.take()  # who is free is sent the version that comes of it
            self.refill(write)
            if not self.invitations.tokens:
                self.wait_for_clients(1)
            self.clock.sleep(self._pause_s())

    def refill(self, write: Write) -> None:
        """Hear what came in, and give the model to as many as there are places."""
        self.listen()
        places = self.plan.concurrency - sum(not one.is_reported for one in self._open())
        if places > 0:
            self._invite(places, write)

    def free(self) -> list[int]:
        """Return the nodes of the clients that are connected and not busy."""
        busy = self._busy()
        return [node for node in self.nodes.look().values() if node not in busy]

    def summary(self, taken: list[tuple[Answer, int]], version: int) -> VersionSummary:
        """Close a version made of answers, with their staleness, and begin the next one."""
        heard, now = self.heard, self.clock.monotonic()
        kept = [answer.client for answer, _ in taken]
        self._seen.difference_update(self.nodes.say_goodbye())
        self.heard = Heard(began_at=now)
        return VersionSummary(
            t=self.nodes.scheduler.t,
            server_round=version,
            cohort=(*kept, *heard.timeouts, *heard.failed),
            kept=tuple(kept),
            timeouts=tuple(heard.timeouts),
            failed=tuple(heard.failed),
            latencies={answer.client: answer.latency_s for answer, _ in taken},
            duration_s=now - heard.began_at,
            n_late=heard.n_late,
            n_seen=len(self._seen),
            n_fleet=len(self.nodes.scheduler.clients),
            reasons=heard.reasons,
            staleness=tuple(age for _, age in taken),
            n_busy=len(self.invitations.tokens),
        )

    # --- inviting -------------------------------------------------------------------------------

    def _invite(self, places: int, write: Write) -> None:
        """Choose clients one by one, as the simulator does, and send them the model."""
        busy, scheduler = self._busy(), self.nodes.scheduler
        idle = {c: node for c, node in self.nodes.look().items() if node not in busy}
        chosen: dict[int, ClientId] = {}
        while idle and len(chosen) < places:
            cohort = scheduler.select(available=set(idle), cohort_size=1)
            if not cohort:  # some policies may choose nobody
                break
            chosen[idle.pop(cohort[0])] = cohort[0]
        if not chosen:
            return
        self.nodes.directory.invite(chosen)
        start = self.clock.monotonic()
        due_s, expiry_s = self.limits.due_s(self.timeout_s), self.limits.expiry_s(self.timeout_s)
        sent = self.wire.send(write(list(chosen)), expiry_s)
        for node, client in chosen.items():
            if node not in sent:
                self._lose(client, Observation(outcome="failed"), "it could not be reached")
                continue
            self._base_of[sent[node]] = self.buffer.version
            self.invitations.open(
                sent[node],
                Invitation(
                    client=client, sent_at=start, due_at=start + due_s, expires_at=start + expiry_s
                ),
            )

    def _busy(self) -> set[int]:
        self.listen()
        self.evaluations.listen()
        training = {self.wire.node_of[token] for token in self.invitations.tokens}
        return training | self.evaluations.busy

    # --- listening ------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take in replies and notice who is overdue; the scheduler is told at once."""
        replies = self.wire.receive(self.invitations.tokens)
        for token, reply in replies.items():
            self._hear(token, reply)
        for one in self.invitations.overdue():
            if not one.is_reported:
                one.is_reported = True
                waited_s = self.invitations.waited_s(one)
                self._lose(one.client, Observation(latency=waited_s, outcome="timeout"))
        on_their_way = set(self.invitations.tokens)
        self._base_of = {k: base for k, base in self._base_of.items() if k in on_their_way}

    def _hear(self, token: str, reply: Message) -> None:
        node, base = self.wire.node_of[token], self._base_of[token]
        one = self.invitations.settle(token)
        waited_s = self.invitations.waited_s(one)
        seen, reason = self.wire.observation(one.client, token, reply, waited_s)
        if reply.has_error():  # of who was given up, nothing is new
            self.heard.errors += [] if one.is_reported else [reply]
        elif reason is not None:
            _LOG.warning("bsfl: the answer of %r is not used: %s", one.client, reason)
        if one.is_reported:  # it was given up
            self.heard.n_late += seen.outcome == "ok"
        elif seen.outcome == "ok":
            assert seen.latency is not None
            self._tell(one.client, seen)
            self._seen.add(one.client)
            self.heard.n_lost = 0
            answer = Answer(client=one.client, reply=reply, latency_s=seen.latency, base=base)
            self._inbox.append(answer)
        else:
            self._lose(one.client, seen, reason)
        if renamed := self.nodes.hear(node, reply):
            before, after = renamed
            self._seen.discard(before)
            self._seen.update(() if after is None else [after])

    def _lose(self, client: ClientId, seen: Observation, reason: str | None = None) -> None:
        self._tell(client, seen)
        self.heard.n_lost += 1
        (self.heard.timeouts if seen.outcome == "timeout" else self.heard.failed).append(client)
        if reason is not None:
            self.heard.reasons[client] = reason

    def _tell(self, client: ClientId, seen: Observation) -> None:
        self.nodes.scheduler.observe({client: seen})

    def _open(self) -> list[Invitation]:
        return [self.invitations[token] for token in self.invitations.tokens]

    def _pause_s(self) -> float:
        """Return how long to wait before listening again, by who was invited last."""
        now, everybody = self.clock.monotonic(), self._open()
        youngest = max((one.sent_at for one in everybody), default=now)
        due = [one.due_at for one in everybody if not one.is_reported]
        left_s = min(due, default=math.inf) - now
        return min(pause_s(now - youngest), max(left_s, A_MOMENT_S))
