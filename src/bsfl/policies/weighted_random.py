"""Random selection with inclusion probabilities proportional to data size."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl.fairness import capped_shares
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import SAMPLES, registered_sizes
from bsfl.state import NothingLearned

CERTAIN = 1.0 - 1e-9
"""An inclusion probability from which a client is simply taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedRandom:
    r"""Choose clients at random, in proportion to the data that they hold.

    Choose m clients so that client k is included with probability min(1, lambda n_k).

    Drawing one client after another with weights n_k does not do that; systematic sampling
    (Madow 1949) does, exactly.
    """

    needs: ClassVar = SAMPLES

    def init(self, n_clients: int) -> NothingLearned:
        return NothingLearned()

    def select(self, state: NothingLearned, context: RoundContext, rng: Rng) -> IntArray:
        sizes, clients = registered_sizes(context), context.available
        return clients[inclusion_draw(sizes[clients], context.cohort_size, rng)]

    def observe(self, state: NothingLearned, context: RoundContext, report: Report) -> None:
        """Learn nothing."""


def inclusion_draw(weight: FloatArray, m: int, rng: Rng) -> IntArray:
    """Return m positions, k among them with probability min(1, lambda w_k), sorted."""
    if m >= len(weight):
        return np.arange(len(weight))
    return systematic_sample(capped_shares(weight, m), rng)


def systematic_sample(inclusion: FloatArray, rng: Rng) -> IntArray:
    r"""Return positions drawn with the given inclusion probabilities, which sum to a whole number.

    Lay the probabilities end to end in random order and take whoever covers U, U + 1, U + 2, ...
    for one uniform U in [0, 1): nobody is longer than 1, so nobody is taken twice.
    """
    certain = np.flatnonzero(inclusion >= CERTAIN)
    others = rng.permutation(np.flatnonzero(inclusion < CERTAIN))
    n_drawn = round(float(inclusion.sum())) - len(certain)
    if n_drawn == 0:
        return certain
    ends = np.cumsum(inclusion[others])
    ends *= n_drawn / ends[-1]  # removes what summing has rounded
    marks = rng.random() + np.arange(n_drawn)
    hits = np.minimum(np.searchsorted(ends, marks, side="right"), len(others) - 1)
    return np.sort(np.concatenate([certain, others[hits]]))
