"""Training messages on their way: who was invited, when, and who still owes an answer."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from bsfl.clients import ClientId
from bsfl.integrations.flower.clock import Clock
from bsfl.records import LATENCY_RANGE, Outcome

EXPIRED = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}
"""Errors with which the SuperLink answers for a client whose time is over."""


@dataclass(slots=True, eq=False)
class Invitation:
    """One message that asks one client to train.

    Attributes:
        client: Who was invited.
        node: Its node when it was.
        sent_at: When, on the server's clock.
        due_at: When its answer is overdue.
        expires_at: When the message ceases to exist, so that no answer can come any more.
        is_reported: Whether the scheduler has been told what became of it.
    """

    client: ClientId
    node: int
    sent_at: float
    due_at: float
    expires_at: float
    is_reported: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply and the time from the invitation to its arrival, in seconds."""

    invitation: Invitation
    reply: Message
    round_trip_s: float

    @property
    def outcome(self) -> Outcome:
        """What it means: the client trained, its time is over, or it failed."""
        if not self.reply.has_error():
            return "ok"
        return "timeout" if self.reply.error.code in EXPIRED else "failed"


class Invitations:
    """All invitations that are not settled: neither answered nor expired.

    Replies are matched by the message they answer. Their sender cannot be relied on: the SuperLink
    itself answers for clients that are gone.
    """

    def __init__(self, grid: Grid, clock: Clock) -> None:
        self._grid = grid
        self._clock = clock
        self._open: dict[str, Invitation] = {}  # by message

    @property
    def busy(self) -> set[int]:
        """The nodes that have a message to work on."""
        return {invitation.node for invitation in self._open.values()}

    @property
    def settled_at(self) -> float:
        """When the last of them will have expired; long ago if there is none."""
        return max((invitation.expires_at for invitation in self._open.values()), default=-math.inf)

    def send(
        self,
        messages: Iterable[Message],
        clients: Mapping[int, ClientId],
        *,
        due_s: float,
        lifetime_s: float,
    ) -> list[Invitation]:
        """Send messages to the nodes of clients; return the invitations that went out."""
        messages = list(messages)
        for message in messages:
            message.metadata.ttl = lifetime_s
        now = self._clock.monotonic()
        sent = set(self._grid.push_messages(messages))
        invitations = []
        for message in messages:
            node, message_id = message.metadata.dst_node_id, message.metadata.message_id
            if message_id not in sent:
                continue
            invitation = Invitation(
                client=clients[node],
                node=node,
                sent_at=now,
                due_at=now + due_s,
                expires_at=now + lifetime_s,
            )
            self._open[message_id] = invitation
            invitations.append(invitation)
        return invitations

    def answers(self) -> list[Answer]:
        """Return the answers that came since the last call, to whichever round."""
        if not self._open:
            return []
        replies = list(self._grid.pull_messages(list(self._open)))
        now = self._clock.monotonic()
        answers = []
        for reply in replies:
            invitation = self._open.pop(reply.metadata.reply_to_message_id)
            round_trip_s = max(now - invitation.sent_at, LATENCY_RANGE[0])
            answers.append(Answer(invitation, reply, round_trip_s))
        return answers

    def overdue(self) -> Iterator[Invitation]:
        """Yield the invitations that should have been answered; forget those that expired."""
        now = self._clock.monotonic()
        for message_id, invitation in list(self._open.items()):
            if now >= invitation.due_at:
                yield invitation
            if now >= invitation.expires_at:
                del self._open[message_id]


def is_lost(reply: Message) -> bool:
    """Return whether a reply comes from the SuperLink: the client itself was not reached."""
    return reply.has_error() and reply.error.code in EXPIRED | {ErrorCode.NODE_UNAVAILABLE}
