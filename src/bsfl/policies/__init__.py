"""The selection rules, one per file; registry.py lists them by name."""

from bsfl.policies.afl import AFL
from bsfl.policies.age import AgeBased
from bsfl.policies.base import Policy
from bsfl.policies.bsfl import BSFL
from bsfl.policies.cs_ucb import CsUcb
from bsfl.policies.cs_ucb_q import CsUcbQ
from bsfl.policies.fedcs import FedCS
from bsfl.policies.genie import Genie
from bsfl.policies.oort import Oort
from bsfl.policies.power_of_choice import PowerOfChoice
from bsfl.policies.rbcs_f import RbcsF
from bsfl.policies.registry import POLICIES, make_policy
from bsfl.policies.tifl import TiFL
from bsfl.policies.ucb_cs import UcbCs
from bsfl.policies.uniform_random import UniformRandom
from bsfl.policies.weighted_random import WeightedRandom

__all__ = [
    "AFL",
    "BSFL",
    "POLICIES",
    "AgeBased",
    "CsUcb",
    "CsUcbQ",
    "FedCS",
    "Genie",
    "Oort",
    "Policy",
    "PowerOfChoice",
    "RbcsF",
    "TiFL",
    "UcbCs",
    "UniformRandom",
    "WeightedRandom",
    "make_policy",
]
