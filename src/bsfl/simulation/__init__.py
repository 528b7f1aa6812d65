"""The virtual-clock loop, the genie's yardstick, and what a run amounts to."""

from bsfl.policies.participation import gini
from bsfl.simulation.metrics import growth_exponent, lorenz, participation
from bsfl.simulation.regret import Objective, Yardstick, regret_bound
from bsfl.simulation.simulate import Training, simulate

__all__ = [
    "Objective",
    "Training",
    "Yardstick",
    "gini",
    "growth_exponent",
    "lorenz",
    "participation",
    "regret_bound",
    "simulate",
]
