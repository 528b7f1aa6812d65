"""Participation targets: BSFL's weight alpha is adapted until participation reaches the target."""

from dataclasses import dataclass, fields

import numpy as np

from bsfl import validation
from bsfl._core.registry import Registry
from bsfl._core.state import number
from bsfl.estimators.fairness import gini
from bsfl.types import FloatArray, IntArray, RoundContext

UP, DOWN = 1.15, 1.03
"""Largest factors of one correction; a deficit takes longer to correct than a surplus."""
WARM_UP = 3
"""Fair participations before the first correction; ratios are coarse then."""
CORRECTIONS = 10
"""Corrections in the rounds in which every client can be selected once."""
LIMITS = 1e-2, 1e4
"""Smallest and largest alpha, in units of K/m."""
MARGIN = 0.01
"""How much better than the target participation is to be."""


@dataclass(slots=True, kw_only=True)
class LearnedWeight:
    """The alpha that was learned; 0 before the first round, or without a target."""

    alpha: float = number(0.0, low=0.0, high=1e30)


@dataclass(frozen=True, slots=True)
class ParticipationTarget:
    """A participation target that alpha is adapted to. Subclasses define how it is measured."""

    def __post_init__(self) -> None:
        for one in fields(self):
            validation.between(one.name, getattr(self, one.name), 0.0, 1.0)

    def weight(self, state: LearnedWeight, context: RoundContext) -> float:
        """Return alpha: what was learned, or at first a value with which g outweighs speed."""
        return state.alpha or 2.0 * rounds_per_pass(context)

    def adapt(self, state: LearnedWeight, context: RoundContext) -> None:
        """Adapt alpha after a round: it rises if participation misses the target.

        CORRECTIONS times in K/m rounds alpha is multiplied by UP^(-e), or by DOWN^(-e) for a
        positive excess e, in units of 0.1 and clipped to -1..1. A correction costs O(K), which is
        O(cohort) a round on average.
        """
        rounds = rounds_per_pass(context)
        state.alpha = self.weight(state, context)
        n_between = max(1, round(rounds / CORRECTIONS))
        if context.round < WARM_UP * rounds or context.round % n_between:
            return
        excess = self.excess(participation_ratios(context), context.round / rounds)
        change = float(np.clip(excess / 0.1, -1.0, 1.0))
        factor = (DOWN if change > 0 else UP) ** -change
        state.alpha = float(np.clip(state.alpha * factor, LIMITS[0] * rounds, LIMITS[1] * rounds))

    def excess(self, ratio: FloatArray, n_passes: float) -> float:
        """Return by how much participation ratios exceed the target, below 0 if they miss it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class MinParticipation(ParticipationTarget):
    """The participation ratio of every client is at least `share`: 0.8 for 80 %."""

    share: float

    def excess(self, ratio: FloatArray, n_passes: float) -> float:
        step = 0.5 / max(n_passes, 1.0)  # half a selection: ratios move in steps of whole ones
        return float(ratio.min(initial=1.0)) - self.share - MARGIN - step


@dataclass(frozen=True, slots=True)
class MaxGini(ParticipationTarget):
    """The Gini coefficient of participation is at most `limit`."""

    limit: float

    def excess(self, ratio: FloatArray, n_passes: float) -> float:
        return self.limit - gini(ratio) - MARGIN


TARGETS: Registry[type] = Registry(
    "alpha", {"min-participation": MinParticipation, "max-gini": MaxGini}, instead="a number"
)


def rounds_per_pass(context: RoundContext) -> float:
    """Return K/m, the rounds in which every client can be selected once."""
    return max(context.n_clients, 1) / context.target_responses


def participation_ratios(context: RoundContext) -> FloatArray:
    """Return each member's invitations over its fair share of all invitations so far.

    Fair counts are scaled to sum to the invitations of all members; dropped responses do not
    count. Clients that were available in too few rounds are left out.
    """
    clients: IntArray = np.arange(len(context.pool))
    members = clients if context.pool.members is None else clients[context.pool.members]
    served = context.served(clients)
    fair = context.fair_count(members)
    known = fair >= WARM_UP
    scale = served[members].sum() / max(fair.sum(), 1.0)
    return np.asarray(served[members[known]] / np.maximum(fair[known] * scale, 1.0))
