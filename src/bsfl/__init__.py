"""Bandit scheduling for federated learning: which clients should train next?"""

from bsfl.policies.afl import AFL
from bsfl.policies.age import AgeBased
from bsfl.policies.bsfl import BSFL
from bsfl.policies.cs_ucb import CsUcb
from bsfl.policies.cs_ucb_q import CsUcbQ
from bsfl.policies.fedcs import FedCS
from bsfl.policies.genie import Genie
from bsfl.policies.oort import Oort
from bsfl.policies.power_of_choice import PowerOfChoice
from bsfl.policies.rbcs_f import RbcsF
from bsfl.policies.tifl import TiFL
from bsfl.policies.ucb_cs import UcbCs
from bsfl.policies.uniform_random import UniformRandom
from bsfl.policies.weighted_random import WeightedRandom
from bsfl.records import Observation, RoundRecord
from bsfl.scheduler import Scheduler

__version__ = "0.1.0"

__all__ = [
    "AFL",
    "BSFL",
    "AgeBased",
    "CsUcb",
    "CsUcbQ",
    "FedCS",
    "Genie",
    "Observation",
    "Oort",
    "PowerOfChoice",
    "RbcsF",
    "RoundRecord",
    "Scheduler",
    "TiFL",
    "UcbCs",
    "UniformRandom",
    "WeightedRandom",
]
