"""The policies by the names that scenario files and the command line use."""

from dataclasses import MISSING, fields
from typing import Any

from bsfl import checks
from bsfl.errors import InvalidInput
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
from bsfl.policies.tifl import TiFL
from bsfl.policies.ucb_cs import UcbCs
from bsfl.policies.uniform_random import UniformRandom
from bsfl.policies.weighted_random import WeightedRandom

POLICIES: dict[str, type[Policy]] = {
    "bsfl": BSFL,
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
}


def make_policy(name: str, **settings: Any) -> Policy:
    """Return the policy with this registry name.

    >>> make_policy("bsfl", alpha=5.0).alpha
    5.0
    """
    policy = _known(name)
    checks.known_settings(f"policy {name!r}", settings, settings_of(name))
    return policy(**settings)


def settings_of(name: str) -> dict[str, bool]:
    """Return the names of a policy's settings and whether each must be given."""
    return {f.name: f.default is MISSING for f in fields(_known(name))}  # type: ignore[arg-type]


def name_of(policy: Policy) -> str | None:
    """Return the registry name of a policy, None for a user's own."""
    return next((name for name, known in POLICIES.items() if type(policy) is known), None)


def _known(name: str) -> type[Policy]:
    if name not in POLICIES:
        raise InvalidInput(f"unknown policy {name!r}; known are {', '.join(POLICIES)}")
    return POLICIES[name]
