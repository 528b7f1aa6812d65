"""Invitations in real time: which clients were invited, when, and which are pending."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bsfl.errors import InvalidInput
from bsfl.rounds.clock import Clock
from bsfl.types import LATENCY_RANGE, ClientId

Token = TypeVar("Token", bound=Hashable)
"""What a response is recognised by: the id of a message, a future, or anything hashable."""


@dataclass(slots=True, eq=False, kw_only=True)
class Invitation:
    """One client that was invited to train.

    Attributes:
        sent_at: When it was sent, on the server's clock.
        due_at: When it is reported as a timeout unless it has responded.
        expires_at: When it expires; a later response is ignored.
        is_reported: Whether its result was reported to the scheduler.
    """

    client: ClientId
    round: int = 0
    sent_at: float
    due_at: float
    expires_at: float
    is_reported: bool = False


class Invitations(Generic[Token]):
    """All invitations without a response that have not expired."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[Token, Invitation] = {}

    def __contains__(self, token: Token) -> bool:
        return token in self._open

    def __getitem__(self, token: Token) -> Invitation:
        return self._open[token]

    @property
    def tokens(self) -> list[Token]:
        """The tokens under which responses may come, oldest first."""
        return list(self._open)

    @property
    def busy(self) -> set[ClientId]:
        """The clients that are in flight."""
        return {invitation.client for invitation in self._open.values()}

    @property
    def settled_at(self) -> float:
        """When the last of them will have expired; long ago if there is none."""
        return max((invitation.expires_at for invitation in self._open.values()), default=-math.inf)

    def open(self, token: Token, invitation: Invitation) -> None:
        if token in self._open:
            raise InvalidInput(f"a token must be new, got {token!r}, which is open already")
        self._open[token] = invitation

    def settle(self, token: Token) -> Invitation:
        """Remove and return an invitation that got its response."""
        return self._open.pop(token)

    def waited_s(self, invitation: Invitation) -> float:
        return max(self._clock.monotonic() - invitation.sent_at, LATENCY_RANGE[0])

    def overdue(self) -> list[Invitation]:
        """Return the overdue invitations, and drop those that have expired."""
        now, pending = self._clock.monotonic(), self._open
        self._open = {
            token: invitation
            for token, invitation in pending.items()
            if now < invitation.expires_at
        }
        return [invitation for invitation in pending.values() if now >= invitation.due_at]
