"""Bandit scheduling for federated learning: which clients should train next?"""

from bsfl import policies
from bsfl.estimation import Discounted, Floor, Lasting, Lognormal, MaxGini, Means, Windowed
from bsfl.policies import *  # noqa: F403  (a new policy is named in one place)
from bsfl.records import Observation, Report, Roster, RoundContext, RoundRecord
from bsfl.scheduler import Scheduler

__version__ = "0.1.0"

__all__ = [
    "Discounted",
    "Floor",
    "Lasting",
    "Lognormal",
    "MaxGini",
    "Means",
    "Observation",
    "Report",
    "Roster",
    "RoundContext",
    "RoundRecord",
    "Scheduler",
    "Windowed",
]
__all__ += policies.__all__
