"""The virtual-clock loop, and regret against the genie."""

from bsfl.simulation.regret import Objective, RegretMeter, growth_exponent, regret_bound
from bsfl.simulation.simulate import simulate
from bsfl.simulation.training import Training

__all__ = ["Objective", "RegretMeter", "Training", "growth_exponent", "regret_bound", "simulate"]
