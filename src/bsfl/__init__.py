"""Bandit scheduling for federated learning: which clients should train next?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bsfl import policies
from bsfl.estimators.indices import Lognormal, UCBIndex
from bsfl.estimators.moments import CumulativeMean, Discounted, SlidingWindow
from bsfl.estimators.participation import MaxGini, MinParticipation
from bsfl.extras import optional_imports
from bsfl.policies import *  # noqa: F403  (a new policy is named in one place)
from bsfl.policy import PolicyWrapper, Selection
from bsfl.scheduler import Scheduler
from bsfl.types import (
    ClosedRound,
    Cohort,
    FloatArray,
    IntArray,
    Observation,
    Rng,
    RoundContext,
    RoundPlan,
    RoundRecord,
    RoundReport,
)

if TYPE_CHECKING:
    from bsfl.experiments.comparison import Comparison, compare
    from bsfl.experiments.reading import read_scenario

__version__ = "0.2.0"

__all__ = [
    "ClosedRound",
    "Cohort",
    "Comparison",
    "CumulativeMean",
    "Discounted",
    "FloatArray",
    "IntArray",
    "Lognormal",
    "MaxGini",
    "MinParticipation",
    "Observation",
    "PolicyWrapper",
    "Rng",
    "RoundContext",
    "RoundPlan",
    "RoundRecord",
    "RoundReport",
    "Scheduler",
    "Selection",
    "SlidingWindow",
    "UCBIndex",
    "compare",
    "read_scenario",
]
__all__ += policies.__all__

LAZY = ("Comparison", "compare", "read_scenario")
"""Names that import the simulator, so they are imported when they are first used."""


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'bsfl' has no attribute {name!r}")
    with optional_imports():
        return getattr(import_module("bsfl.experiments"), name)
