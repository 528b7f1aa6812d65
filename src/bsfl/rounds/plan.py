"""How many are invited to a round, how long it waits, and on which clock.

Time is monotonic, on the server alone.
"""

import math
import time
from dataclasses import dataclass
from typing import Literal, Protocol

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.over_selection import Invite, check_invite, most_invited


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """The numbers of a round.

    >>> plan = RoundPlan(cohort_size=10, invite=1.25, deadline_s=60.0)
    >>> plan.most_invited, plan.due_s(), plan.expiry_s()
    (13, 60.0, 120.0)

    Attributes:
        cohort_size: m, how many answers a round wants; so many good ones end it.
        deadline_s: Seconds after which a round ends without those who have not answered. None: it
            waits for everybody, or for as long as the caller says.
        quorum: How many must have answered before the deadline ends a round.
        invite: How many times cohort_size are invited, or "auto": as many as it takes by the
            clients' record that enough answer. The first cohort_size answers are kept.
        lifetime_s: Seconds until an invitation expires. Until then whoever has not answered is
            busy. None: twice the deadline.
        longest_s: Seconds after which any answer is overdue, with or without a deadline.
        late: What becomes of an answer that comes when its round is over: "drop" it, or "apply" it
            with the next round's, weighted by its staleness. It teaches its latency in any case.
    """

    cohort_size: int
    deadline_s: float | None = None
    quorum: int = 0
    invite: Invite = 1.0
    lifetime_s: float | None = None
    longest_s: float = math.inf
    late: Literal["drop", "apply"] = "drop"

    def __post_init__(self) -> None:
        checks.natural("cohort_size", self.cohort_size)
        checks.one_of("late", self.late, ("drop", "apply"))
        check_invite(self.invite)
        checks.natural("quorum", self.quorum, low=0)
        if self.quorum > self.cohort_size:
            raise InvalidInput(
                f"quorum must not exceed the cohort_size of {self.cohort_size}, got {self.quorum}"
            )
        if self.deadline_s is not None:
            checks.positive("deadline_s", self.deadline_s)
        elif self.quorum:
            raise InvalidInput(f"quorum={self.quorum} needs a deadline_s, or a policy with tau_max")
        if self.lifetime_s is not None:
            checks.positive("lifetime_s", self.lifetime_s)
            checks.at_least("lifetime_s", self.lifetime_s, self.deadline_s or 0.0)

    @property
    def most_invited(self) -> int:
        return most_invited(self.invite, self.cohort_size)

    def due_s(self, timeout_s: float | None = None) -> float:
        """Return after how many seconds an answer is overdue, given the caller's own timeout."""
        return min(self.deadline_s or math.inf, timeout_s or math.inf, self.longest_s)

    def expiry_s(self, timeout_s: float | None = None) -> float:
        due_s = self.due_s(timeout_s)
        return max(self.lifetime_s or 2.0 * due_s, due_s)

    def limit_s(self, timeout_s: float | None = None) -> float:
        """Return after how many seconds a round is given up, even without its quorum."""
        return min(self.expiry_s(timeout_s), timeout_s or math.inf)


class Clock(Protocol):
    """Anything that tells the time and can wait."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


SYSTEM: Clock = time
"""The clock of this machine."""

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
A_MOMENT_S = 0.001


def pause_s(waited_s: float, until: float = math.inf) -> float:
    """Return how long to wait before asking again: 2 % of the wait so far, within limits.

    What is measured by asking is then at most 2 % or a tenth of a second too long (Flower asks as
    often in simulation), and a long wait costs few questions. `until` is a moment of the wait that
    is not to be missed.

    >>> pause_s(0.0), pause_s(10.0), pause_s(600.0), pause_s(4.75, until=5.0)
    (0.1, 0.2, 1.0, 0.1)
    >>> pause_s(600.0, until=600.25), pause_s(600.0, until=500.0)
    (0.25, 1.0)
    """
    pause = min(max(0.02 * waited_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
    return min(pause, max(until - waited_s, A_MOMENT_S)) if waited_s < until else pause
