"""The simulator: clients on a virtual clock, the loops of rounds, and regret against the oracle.

simulate    the loops of rounds                    latency       how long clients take in a round
in_flight   when rounds end, what is reported      populations   latencies by name
training    the global model                       availability  which clients can be selected
regret      what the oracle would have earned      intervals     when they come and go by the clock
clients     the clients, as they truly are         week          phones over a week
client_rows CSV files, opened safely               response_log  responses as servers log them
"""

from bsfl.simulation.availability import (
    AVAILABILITIES,
    Always,
    Independent,
    RecordedAvailability,
    read_availability,
)
from bsfl.simulation.clients import SimulatedClients
from bsfl.simulation.intervals import Intervals, read_intervals
from bsfl.simulation.latency import (
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
from bsfl.simulation.populations import POPULATIONS
from bsfl.simulation.regret import Objective, RegretMeter, growth_exponent, regret_bound
from bsfl.simulation.simulate import simulate
from bsfl.simulation.training import Training
from bsfl.simulation.week import phone_week

__all__ = [
    "AVAILABILITIES",
    "POPULATIONS",
    "Always",
    "Flaky",
    "Independent",
    "Intervals",
    "Latencies",
    "Objective",
    "Recorded",
    "RecordedAvailability",
    "RegretMeter",
    "Sampled",
    "Scaled",
    "SimulatedClients",
    "Swapped",
    "Training",
    "clipped_normal",
    "growth_exponent",
    "inverse_normal",
    "lognormal",
    "phone_week",
    "read_availability",
    "read_intervals",
    "regret_bound",
    "shifted_exponential",
    "simulate",
]
