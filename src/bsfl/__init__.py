"""Bandit scheduling for federated learning: which clients should train next?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bsfl import policies
from bsfl.estimation import Discounted, Floor, Lasting, Lognormal, MaxGini, Means, Windowed
from bsfl.policies import *  # noqa: F403  (a new policy is named in one place)
from bsfl.records import (
    FloatArray,
    IntArray,
    Observation,
    Report,
    Rng,
    Roster,
    RoundContext,
    RoundRecord,
)
from bsfl.scheduler import Scheduler

if TYPE_CHECKING:
    from bsfl.comparison import Comparison, compare

__version__ = "0.2.0"

__all__ = [
    "Comparison",
    "Discounted",
    "FloatArray",
    "Floor",
    "IntArray",
    "Lasting",
    "Lognormal",
    "MaxGini",
    "Means",
    "Observation",
    "Report",
    "Rng",
    "Roster",
    "RoundContext",
    "RoundRecord",
    "Scheduler",
    "Windowed",
    "compare",
]
__all__ += policies.__all__

LATER = ("Comparison", "compare")
"""Names that bring the simulator along, so they are imported when they are asked for."""


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module 'bsfl' has no attribute {name!r}")
    return getattr(import_module("bsfl.comparison"), name)
