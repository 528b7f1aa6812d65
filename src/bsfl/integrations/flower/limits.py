"""The numbers of a round in Flower: a round's own, and how many clients it needs to begin."""

from dataclasses import dataclass

from flwr.app import DEFAULT_TTL

from bsfl import checks
from bsfl.rounds import RoundPlan


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
