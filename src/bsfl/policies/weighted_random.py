"""Random selection with inclusion probabilities proportional to data size."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl.estimators.fairness import capped_shares
from bsfl.policy import SAMPLES, Policy
from bsfl.types import FloatArray, IntArray, Rng, RoundContext

CERTAIN = 1.0 - 1e-9
"""A client with at least this inclusion probability is always included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedRandom(Policy):
    r"""Select clients at random, in proportion to the data that they hold.

    Select m clients so that client k is included with probability min(1, lambda n_k).

    Drawing one client after another with weights n_k does not have these probabilities; systematic
    sampling (Madow 1949) has them exactly.

    >>> from bsfl import Scheduler
    >>> scheduler = Scheduler(WeightedRandom(), cohort_size=2)
    >>> scheduler.join(["ann", "bob", "cem"], samples=[1, 1, 100])
    >>> "cem" in scheduler.select()
    True
    """

    needs: ClassVar = SAMPLES

    def select(self, state: None, context: RoundContext, rng: Rng) -> IntArray:
        sizes, clients = context.pool.sizes, context.available
        return clients[inclusion_draw(sizes[clients], context.n_invited, rng)]


def inclusion_draw(weight: FloatArray, m: int, rng: Rng) -> IntArray:
    """Return m positions, k among them with probability min(1, lambda w_k), sorted."""
    if m >= len(weight):
        return np.arange(len(weight))
    return systematic_sample(capped_shares(weight, m), rng)


def systematic_sample(inclusion: FloatArray, rng: Rng) -> IntArray:
    r"""Return positions drawn with the given inclusion probabilities, which sum to a whole number.

    Lay the probabilities end to end in random order and include the clients that cover U, U + 1,
    U + 2, ... for one uniform U in [0, 1). No probability exceeds 1, so the clients are distinct.
    """
    certain = np.flatnonzero(inclusion >= CERTAIN)
    others = rng.permutation(np.flatnonzero(inclusion < CERTAIN))
    n_drawn = round(float(inclusion.sum())) - len(certain)
    if n_drawn == 0:
        return certain
    ends = np.cumsum(inclusion[others])
    ends *= n_drawn / ends[-1]  # removes rounding errors of the sum
    marks = rng.random() + np.arange(n_drawn)
    hits = np.minimum(np.searchsorted(ends, marks, side="right"), len(others) - 1)
    return np.sort(np.concatenate([certain, others[hits]]))
