"""Asynchronous training on a grid: each client that ends is replaced by another one."""

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from flwr.app import Message

from bsfl.integrations.flower.federation import Evaluations, Limits
from bsfl.integrations.flower.message_exchange import MessageExchange
from bsfl.integrations.flower.nodes import Nodes
from bsfl.integrations.flower.summary import VersionSummary
from bsfl.rounds import Buffer, BufferPlan, Clock, Invitation, Invitations, pause_s
from bsfl.rounds.clock import SHORTEST_WAIT_S
from bsfl.types import ClientId, Cohort, Observation

Write = Callable[[list[int]], list[Message]]
"""Returns messages that train some nodes on the current model."""

_LOG = logging.getLogger("flwr")


@dataclass(slots=True, kw_only=True)
class Received:
    """What was received since the last version.

    Attributes:
        began_at: When the last version was made.
        timeouts, failed: Clients that timed out, and clients that failed.
        reasons: Why clients failed.
        errors: Replies that are errors.
        n_late: How many clients replied after they had timed out.
        n_lost: How many timed out or failed since the last reply that can be used.
    """

    began_at: float
    timeouts: list[ClientId] = field(default_factory=list)
    failed: list[ClientId] = field(default_factory=list)
    reasons: dict[ClientId, str] = field(default_factory=dict)
    errors: list[Message] = field(default_factory=list)
    n_late: int = 0
    n_lost: int = 0


@dataclass(slots=True, kw_only=True)
class Update:
    """A reply with a trained model.

    Attributes:
        client: The client that replied.
        reply: The reply.
        latency_s: How long it took.
        base: The version of the model that the client trained on.
    """

    client: ClientId
    reply: Message
    latency_s: float
    base: int


@dataclass(slots=True, kw_only=True)
class AsyncRun:
    """Keeps a number of clients in flight and collects their updates.

    Every invitation is a round of the scheduler with one client. As many rounds are open as clients
    are in flight, so every reply before the deadline is fresh.

    Attributes:
        nodes: The connected nodes.
        messages: Sends messages and turns replies into observations.
        evaluations: Sends evaluation messages.
        clock: The clock on which training takes time.
        plan: How many clients are in flight, and how many updates make a version.
        limits: When a reply is overdue, and its message expires.
        timeout_s: Seconds after which a client times out at the latest.
        buffer: Updates for the next version.
        received: What was received since the last version.
        invitations: Those that have not expired, by the ids of their messages.
    """

    nodes: Nodes
    messages: MessageExchange
    evaluations: Evaluations
    clock: Clock
    plan: BufferPlan
    limits: Limits
    buffer: Buffer[Update]
    received: Received
    timeout_s: float | None = None
    invitations: Invitations[str]
    _base_of: dict[str, int] = field(default_factory=dict)
    _inbox: deque[Update] = field(default_factory=deque)
    _seen: set[ClientId] = field(default_factory=set)

    @property
    def versions_in_use(self) -> set[int]:
        """The versions that clients train on, or whose updates wait."""
        waiting = {update.base for update in self._inbox}
        return waiting | {self._base_of[token] for token in self.invitations.tokens}

    def wait_for_clients(self, min_clients: int) -> None:
        """Wait until so many clients are connected, one of them free."""
        self.nodes.wait(
            self._busy,
            min_clients=min_clients,
            min_free=1,
            wait_s=self.limits.wait_s,
            pause=self.clock.sleep,
            is_settled=lambda: self.clock.monotonic() >= self.invitations.settled_at,
        )

    def collect(self, write: Write) -> list[tuple[Update, int]]:
        """Return the updates of the next version with their staleness.

        There are `buffer` of them, or fewer if as many clients in a row were lost as are in flight.
        """
        while True:
            self.receive()
            while self._inbox and not self.buffer.is_full:
                update = self._inbox.popleft()
                self.buffer.add(update, base=update.base)
            if self.buffer.is_full or self.received.n_lost >= self.plan.concurrency:
                return self.buffer.take()  # free clients get the version that is made of it
            self.refill(write)
            if not self.invitations.tokens:
                self.wait_for_clients(1)
            self.clock.sleep(self._pause_s())

    def refill(self, write: Write) -> None:
        """Receive replies, and send the model to a client for every free place."""
        self.receive()
        n_free = self.plan.concurrency - sum(not one.is_reported for one in self._open())
        if n_free > 0:
            self._invite(n_free, write)

    def free(self) -> list[int]:
        """Return the nodes of the clients that are connected and not busy."""
        busy = self._busy()
        return [node for node in self.nodes.connected().values() if node not in busy]

    def summary(self, updates: list[tuple[Update, int]], version: int) -> VersionSummary:
        """Return the summary of a version made of these updates, and begin the next one."""
        received, now = self.received, self.clock.monotonic()
        kept = [update.client for update, _ in updates]
        self._seen.difference_update(self.nodes.remove_absent())
        self.received = Received(began_at=now)
        return VersionSummary(
            round=self.nodes.scheduler.round,
            server_round=version,
            cohort=(*kept, *received.timeouts, *received.failed),
            kept=tuple(kept),
            timeouts=tuple(received.timeouts),
            failed=tuple(received.failed),
            latencies={update.client: update.latency_s for update, _ in updates},
            duration_s=now - received.began_at,
            n_late=received.n_late,
            n_seen=len(self._seen),
            n_clients=len(self.nodes.scheduler.clients),
            reasons=received.reasons,
            staleness=tuple(staleness for _, staleness in updates),
            n_busy=len(self.invitations.tokens),
        )

    # --- inviting -------------------------------------------------------------------------------

    def _invite(self, n_free: int, write: Write) -> None:
        """Select clients one by one, as the simulator does, and send them the model."""
        busy, scheduler = self._busy(), self.nodes.scheduler
        scheduler.max_open_rounds = self.plan.concurrency
        idle = {c: node for c, node in self.nodes.connected().items() if node not in busy}
        cohorts: dict[int, Cohort] = {}
        while idle and len(cohorts) < n_free:
            cohort = scheduler.select(available=set(idle), cohort_size=1, over_selection=1.0)
            if not cohort:  # lifetime_s of the scheduler may keep all clients in flight
                break
            scheduler.observe({}, round=cohort)  # the policy learns which client is in flight
            cohorts[idle.pop(cohort[0])] = cohort
        if not cohorts:
            return
        self.nodes.registry.mark_invited(cohorts)
        start = self.clock.monotonic()
        due_s, expiry_s = self.limits.due_s(self.timeout_s), self.limits.expiry_s(self.timeout_s)
        sent = self.messages.send(write(list(cohorts)), expiry_s)
        for node, cohort in cohorts.items():
            invitation = Invitation(
                client=cohort[0],
                round=cohort.round,
                sent_at=start,
                due_at=start + due_s,
                expires_at=start + expiry_s,
            )
            if node in sent:
                self._base_of[sent[node]] = self.buffer.version
                self.invitations.open(sent[node], invitation)
            else:
                unreachable = Observation(outcome="failed")
                self._lose(invitation, unreachable, "it could not be reached")

    def _busy(self) -> set[int]:
        self.receive()
        self.evaluations.receive()
        training = {self.messages.node_of[token] for token in self.invitations.tokens}
        return training | self.evaluations.busy

    # --- receiving ------------------------------------------------------------------------------

    def receive(self) -> None:
        """Receive replies and find overdue clients; both are reported to the scheduler at once."""
        replies = self.messages.receive(self.invitations.tokens)
        for token, reply in replies.items():
            self._record(token, reply)
        for invitation in self.invitations.overdue():
            if not invitation.is_reported:
                waited_s = self.invitations.waited_s(invitation)
                self._lose(invitation, Observation(latency_s=waited_s, outcome="timeout"))
        in_flight = set(self.invitations.tokens)
        self._base_of = {k: base for k, base in self._base_of.items() if k in in_flight}

    def _record(self, token: str, reply: Message) -> None:
        node, base = self.messages.node_of[token], self._base_of[token]
        invitation = self.invitations.settle(token)
        client, waited_s = invitation.client, self.invitations.waited_s(invitation)
        observation, reason = self.messages.observation(client, token, reply, waited_s)
        if reply.has_error():  # of a client that timed out it is nothing new
            self.received.errors += [] if invitation.is_reported else [reply]
        elif reason is not None:
            _LOG.warning("bsfl: the reply of %r is not used: %s", client, reason)
        if invitation.is_reported:  # it timed out
            self.received.n_late += observation.outcome == "ok"
        elif observation.outcome == "ok":
            assert observation.latency_s is not None
            self._report(invitation, observation)
            self._seen.add(client)
            self.received.n_lost = 0
            latency_s = observation.latency_s
            self._inbox.append(Update(client=client, reply=reply, latency_s=latency_s, base=base))
        else:
            self._lose(invitation, observation, reason)
        if renamed := self.nodes.rename_from(node, reply):
            before, after = renamed
            self._seen.discard(before)
            self._seen.update(() if after is None else [after])

    def _lose(
        self, invitation: Invitation, observation: Observation, reason: str | None = None
    ) -> None:
        """Record a client that timed out or failed."""
        self._report(invitation, observation)
        received, client = self.received, invitation.client
        received.n_lost += 1
        (received.timeouts if observation.outcome == "timeout" else received.failed).append(client)
        if reason is not None:
            received.reasons[client] = reason

    def _report(self, invitation: Invitation, observation: Observation) -> None:
        invitation.is_reported = True
        self.nodes.scheduler.observe({invitation.client: observation}, round=invitation.round)

    def _open(self) -> list[Invitation]:
        return [self.invitations[token] for token in self.invitations.tokens]

    def _pause_s(self) -> float:
        """Return how long to wait before the next poll, by the invitation that was sent last."""
        now, invitations = self.clock.monotonic(), self._open()
        last_sent = max((invitation.sent_at for invitation in invitations), default=now)
        due = [invitation.due_at for invitation in invitations if not invitation.is_reported]
        left_s = min(due, default=math.inf) - now
        return min(pause_s(now - last_sent), max(left_s, SHORTEST_WAIT_S))
