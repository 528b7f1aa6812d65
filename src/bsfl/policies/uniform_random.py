"""Uniform random selection, what federated learning does by default."""

from dataclasses import dataclass

import numpy as np

from bsfl.records import IntArray, Report, Rng, RoundContext
from bsfl.state import NothingLearned


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformRandom:
    """Choose clients at random, every cohort equally likely."""

    def init(self, n_clients: int) -> NothingLearned:
        return NothingLearned()

    def select(self, state: NothingLearned, context: RoundContext, rng: Rng) -> IntArray:
        m = min(context.cohort_size, len(context.available))
        return np.sort(rng.choice(context.available, m, replace=False, shuffle=False))

    def observe(self, state: NothingLearned, context: RoundContext, report: Report) -> None:
        """Learn nothing."""
