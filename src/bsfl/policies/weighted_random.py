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
    r"""Choose m clients so that client k is included with probability min(1, lambda n_k).

    Drawing one client after another with weights n_k does not do that; systematic sampling
    (Madow 1949) does, exactly.
    """

    needs: ClassVar = SAMPLES

    def init(self, n_clients: int) -> NothingLearned:
        return NothingLearned()

    def select(self, state: NothingLearned, context: RoundContext, rng: Rng) -> IntArray:
        sizes = registered_sizes(context)
        m = min(context.cohort_size, len(context.available))
        if m == 0:
            return context.available
        inclusion = capped_shares(sizes[context.available], m)
        return context.available[systematic_sample(inclusion, rng)]

    def observe(self, state: NothingLearned, context: RoundContext, report: Report) -> None:
        """Learn nothing."""


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
