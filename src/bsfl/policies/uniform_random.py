"""Uniform random selection, the default of federated learning."""

from dataclasses import dataclass

import numpy as np

from bsfl.policy import Policy
from bsfl.types import IntArray, Rng, RoundContext


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformRandom(Policy):
    """Select clients at random, every cohort equally likely.

    >>> from bsfl import Scheduler
    >>> len(Scheduler(UniformRandom(), cohort_size=2).select(["ann", "bob", "cem"]))
    2
    """

    def select(self, state: None, context: RoundContext, rng: Rng) -> IntArray:
        m = min(context.n_invited, len(context.available))
        return np.sort(rng.choice(context.available, m, replace=False, shuffle=False))
