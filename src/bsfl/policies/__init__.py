"""The selection rules, one per file; POLICIES lists them by name."""

from bsfl._core.registry import Registry
from bsfl.policies.afl import AFL
from bsfl.policies.age import AgeBased
from bsfl.policies.alternating import ARMS, Alternating
from bsfl.policies.bsfl import BSFL
from bsfl.policies.cs_ucb import CsUcb
from bsfl.policies.cs_ucb_q import CsUcbQ
from bsfl.policies.f3ast import F3ast
from bsfl.policies.fedcs import FedCS
from bsfl.policies.genie import Genie
from bsfl.policies.luo import Luo
from bsfl.policies.oort import Oort
from bsfl.policies.pace import Pace
from bsfl.policies.pisces import Pisces
from bsfl.policies.power_of_choice import PowerOfChoice
from bsfl.policies.rbcs_f import RbcsF
from bsfl.policies.refl import Refl
from bsfl.policies.tifl import TiFL
from bsfl.policies.ucb_cs import UcbCs
from bsfl.policies.uniform_random import UniformRandom
from bsfl.policies.weighted_random import WeightedRandom
from bsfl.policy import Policy

POLICIES: Registry[type[Policy]] = Registry(
    "policy",
    {
        "bsfl": BSFL,
        "pace": Pace,
        "cs-ucb": CsUcb,
        "cs-ucb-q": CsUcbQ,
        "random": UniformRandom,
        "weighted": WeightedRandom,
        "genie": Genie,
        "rbcs-f": RbcsF,
        "ucb-cs": UcbCs,
        "power-of-choice": PowerOfChoice,
        "fedcs": FedCS,
        "oort": Oort,
        "tifl": TiFL,
        "age": AgeBased,
        "afl": AFL,
        "f3ast": F3ast,
        "refl": Refl,
        "luo": Luo,
        "pisces": Pisces,
        "alternating": Alternating,
    },
    group="bsfl.policies",
    unlisted=("alternating",),
    base=Policy,
)
ARMS.known.update(POLICIES)


def make_policy(name: str, /, **settings: object) -> Policy:
    """Return the policy with this name; components may be plain data.

    >>> make_policy("bsfl", index={"kind": "lognormal", "quantile": 0.8}).index.quantile
    0.8
    """
    policy: Policy = POLICIES.make(name, **settings)
    return policy


__all__ = [
    "AFL",
    "BSFL",
    "POLICIES",
    "AgeBased",
    "Alternating",
    "CsUcb",
    "CsUcbQ",
    "F3ast",
    "FedCS",
    "Genie",
    "Luo",
    "Oort",
    "Pace",
    "Pisces",
    "Policy",
    "PowerOfChoice",
    "RbcsF",
    "Refl",
    "TiFL",
    "UcbCs",
    "UniformRandom",
    "WeightedRandom",
    "make_policy",
]
