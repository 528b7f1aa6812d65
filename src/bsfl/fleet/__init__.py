"""The simulated clients: how fast they are, when they can be reached, how they change."""

from bsfl.fleet.availability import Always, Independent, RecordedAvailability, read_availability
from bsfl.fleet.fleet import Fleet
from bsfl.fleet.latency import (
    Flaky,
    Latencies,
    Recorded,
    Scaled,
    Swapped,
    clipped_normal,
    inverse_normal,
    lognormal,
    shifted_exponential,
)
from bsfl.fleet.populations import POPULATIONS

__all__ = [
    "POPULATIONS",
    "Always",
    "Flaky",
    "Fleet",
    "Independent",
    "Latencies",
    "Recorded",
    "RecordedAvailability",
    "Scaled",
    "Swapped",
    "clipped_normal",
    "inverse_normal",
    "lognormal",
    "read_availability",
    "shifted_exponential",
]
