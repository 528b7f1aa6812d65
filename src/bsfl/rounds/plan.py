"""How many are invited to a round and how long it waits: numbers that are checked once."""

import math
from dataclasses import dataclass

from bsfl import checks
from bsfl.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """The numbers of a round.

    >>> plan = RoundPlan(cohort_size=10, invite=1.25, deadline_s=60.0)
    >>> plan.n_invited, plan.due_s(), plan.expiry_s()
    (13, 60.0, 120.0)

    Attributes:
        cohort_size: m, how many answers a round wants; so many good ones end it.
        deadline_s: Seconds after which a round ends without those who have not answered. None: it
            waits for everybody, or for as long as the caller says.
        quorum: How many must have answered before the deadline ends a round.
        invite: How many times cohort_size are invited; the first cohort_size answers are kept.
        lifetime_s: Seconds until an invitation expires. Until then whoever has not answered is
            busy. None: twice the deadline.
        longest_s: Seconds after which any answer is overdue, with or without a deadline.
    """

    cohort_size: int
    deadline_s: float | None = None
    quorum: int = 0
    invite: float = 1.0
    lifetime_s: float | None = None
    longest_s: float = math.inf

    def __post_init__(self) -> None:
        checks.natural("cohort_size", self.cohort_size)
        checks.at_least("invite", self.invite, 1.0)
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
    def n_invited(self) -> int:
        return math.ceil(round(self.invite * self.cohort_size, 6))

    def due_s(self, timeout_s: float | None = None) -> float:
        """Return after how many seconds an answer is overdue, given the caller's own timeout."""
        return min(self.deadline_s or math.inf, timeout_s or math.inf, self.longest_s)

    def expiry_s(self, timeout_s: float | None = None) -> float:
        """Return after how many seconds an invitation expires."""
        due_s = self.due_s(timeout_s)
        return max(self.lifetime_s or 2.0 * due_s, due_s)

    def limit_s(self, timeout_s: float | None = None) -> float:
        """Return after how many seconds a round is given up, even without its quorum."""
        return min(self.expiry_s(timeout_s), timeout_s or math.inf)
