"""Invitations on their way: who was invited, when, and who still owes an answer."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bsfl.errors import InvalidInput
from bsfl.records import LATENCY_RANGE
from bsfl.rounds.plan import Clock
from bsfl.scheduling.clients import ClientId

Token = TypeVar("Token", bound=Hashable)
"""What an answer is recognised by: the id of a message, a future, whatever the caller likes."""


@dataclass(slots=True, eq=False, kw_only=True)
class Invitation:
    """One client that was asked to train.

    Attributes:
        client: Who was invited.
        sent_at: When, on the server's clock.
        due_at: When its answer is overdue.
        expires_at: When it ceases to exist, so that no answer is waited for any more.
        is_reported: Whether the scheduler has been told what became of it.
    """

    client: ClientId
    sent_at: float
    due_at: float
    expires_at: float
    is_reported: bool = False


class Invitations(Generic[Token]):
    """All invitations that are not settled: neither answered nor expired."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[Token, Invitation] = {}

    def __contains__(self, token: Token) -> bool:
        return token in self._open

    def __getitem__(self, token: Token) -> Invitation:
        return self._open[token]

    @property
    def tokens(self) -> list[Token]:
        """The tokens under which answers may come, oldest first."""
        return list(self._open)

    @property
    def busy(self) -> set[ClientId]:
        """The clients that have something to work on."""
        return {invitation.client for invitation in self._open.values()}

    @property
    def settled_at(self) -> float:
        """When the last of them will have expired; long ago if there is none."""
        return max((invitation.expires_at for invitation in self._open.values()), default=-math.inf)

    def open(self, token: Token, invitation: Invitation) -> None:
        if token in self._open:
            raise InvalidInput(f"a token must be new, got {token!r}, which is waited for already")
        self._open[token] = invitation

    def settle(self, token: Token) -> Invitation:
        """Return the invitation that was answered; nothing more is expected of it."""
        return self._open.pop(token)

    def waited_s(self, invitation: Invitation) -> float:
        return max(self._clock.monotonic() - invitation.sent_at, LATENCY_RANGE[0])

    def overdue(self) -> list[Invitation]:
        """Return the invitations that should have been answered; forget those that expired."""
        now = self._clock.monotonic()
        late = [one for one in self._open.values() if now >= one.due_at]
        self._open = {token: one for token, one in self._open.items() if now < one.expires_at}
        return late
