"""The simulated clients: how fast they are, when they can be reached, what data they hold."""

from bsfl.fleet.availabilities import AVAILABILITIES
from bsfl.fleet.availability import Always, Independent, RecordedAvailability, read_availability
from bsfl.fleet.fleet import Fleet
from bsfl.fleet.intervals import Intervals, read_intervals
from bsfl.fleet.latency import (
    Flaky,
    Latencies,
    Recorded,
    Sampled,
    Scaled,
    Swapped,
    clipped_normal,
    inverse_normal,
    lognormal,
    shifted_exponential,
)
from bsfl.fleet.populations import POPULATIONS
from bsfl.fleet.split import SPLITS, Split, make_split
from bsfl.fleet.week import phone_week

__all__ = [
    "AVAILABILITIES",
    "POPULATIONS",
    "SPLITS",
    "Always",
    "Flaky",
    "Fleet",
    "Independent",
    "Intervals",
    "Latencies",
    "Recorded",
    "RecordedAvailability",
    "Sampled",
    "Scaled",
    "Split",
    "Swapped",
    "clipped_normal",
    "inverse_normal",
    "lognormal",
    "make_split",
    "phone_week",
    "read_availability",
    "read_intervals",
    "shifted_exponential",
]
