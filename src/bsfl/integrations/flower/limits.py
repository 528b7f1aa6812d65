"""How many are invited and how long is waited: the numbers of a round, checked once."""

import math
from dataclasses import dataclass

from flwr.app import DEFAULT_TTL

from bsfl import checks
from bsfl.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The numbers of a round; the docstring of `Selected` tells what they mean.

    Attributes:
        min_free: How many clients that are not busy the wrapped strategy needs.
    """

    cohort_size: int
    deadline_s: float | None
    quorum: int
    invite: float
    lifetime_s: float | None
    min_clients: int
    min_free: int
    wait_s: float

    def __post_init__(self) -> None:
        checks.at_least("invite", self.invite, 1.0)
        checks.natural("min_clients", self.min_clients)
        checks.at_least("wait_s", self.wait_s, 0.0)
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
        """How many clients are invited to a round."""
        return math.ceil(round(self.invite * self.cohort_size, 6))

    def due_s(self, timeout: float | None) -> float:
        """Return after how many seconds an answer is overdue, given the timeout of `start`."""
        return min(self.deadline_s or math.inf, timeout or math.inf, DEFAULT_TTL)

    def expiry_s(self, timeout: float | None) -> float:
        """Return after how many seconds a message expires."""
        due_s = self.due_s(timeout)
        return max(self.lifetime_s or 2.0 * due_s, due_s)
