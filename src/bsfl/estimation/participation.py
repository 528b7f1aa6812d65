"""A weight that finds itself: alpha is moved until participation is what was asked for."""

from dataclasses import dataclass, fields

import numpy as np

from bsfl import checks
from bsfl.fairness import gini
from bsfl.records import FloatArray, IntArray, RoundContext
from bsfl.registry import Registry
from bsfl.state import number

UP, DOWN = 1.15, 1.03
"""Factors by which alpha moves at most in one correction; what was missed is hard to make good."""
FIRST_TURNS = 3
"""Times that the fleet is chosen through before the first correction; shares are coarse then."""
CORRECTIONS = 10
"""Corrections in the time that a whole fleet takes to be chosen once."""
LIMITS = 1e-2, 1e4
"""Smallest and largest alpha, in units of K/m."""
MARGIN = 0.01
"""How much better than asked for alpha aims at."""


@dataclass(slots=True, kw_only=True)
class FoundWeight:
    """The alpha that was found; 0 before the first round."""

    alpha: float = number(0.0, low=0.0, high=1e30)


@dataclass(frozen=True, slots=True)
class Aim:
    """What participation shall be; alpha follows. Floor and MaxGini say how it is measured."""

    def __post_init__(self) -> None:
        for one in fields(self):
            checks.between(one.name, getattr(self, one.name), 0.0, 1.0)

    def init(self) -> FoundWeight:
        return FoundWeight()

    def weight(self, state: FoundWeight, context: RoundContext, n_known: int) -> float:
        """Return alpha: what was found, or one that makes participation outweigh speed."""
        return state.alpha or 2.0 * turn(context, n_known)

    def adapt(self, state: FoundWeight, selected: IntArray, context: RoundContext) -> None:
        """Move alpha after a round: up when participation is worse than asked for.

        Every so many rounds alpha is multiplied by UP^(-e), or by DOWN^(-e) for a positive excess
        e, in units of 0.1 and cut to -1..1. The cost, O(K) then, is O(cohort) a round on average.
        """
        rounds = turn(context, len(selected))
        state.alpha = self.weight(state, context, len(selected))
        if context.t < FIRST_TURNS * rounds or context.t % max(1, round(rounds / CORRECTIONS)):
            return
        excess = self.excess(served(selected, context), context.t / rounds)
        change = float(np.clip(excess / 0.1, -1.0, 1.0))
        factor = (DOWN if change > 0 else UP) ** -change
        state.alpha = float(np.clip(state.alpha * factor, LIMITS[0] * rounds, LIMITS[1] * rounds))

    def excess(self, share: FloatArray, turns: float) -> float:
        """Return how much better than asked for shares are after so many turns, below 0: worse."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Floor(Aim):
    """No client falls below this part of its fair share: 0.8 for 80 %."""

    share: float

    def excess(self, share: FloatArray, turns: float) -> float:
        step = 0.5 / max(turns, 1.0)  # half a selection: shares move in steps of whole ones
        return float(share.min(initial=1.0)) - self.share - MARGIN - step


@dataclass(frozen=True, slots=True)
class MaxGini(Aim):
    """Selections stay no less even than this Gini coefficient."""

    limit: float

    def excess(self, share: FloatArray, turns: float) -> float:
        return self.limit - gini(share) - MARGIN


AIMS: Registry[type] = Registry("alpha", {"floor": Floor, "max-gini": MaxGini}, instead="a number")


def turn(context: RoundContext, n_known: int) -> float:
    """Return K/m, the rounds in which the whole fleet can be chosen once."""
    return max(context.n_members(n_known), 1) / context.quota


def served(selected: IntArray, context: RoundContext) -> FloatArray:
    """Return each member's selections over its fair number of them so far.

    The fair number is its part of what all members were given, by its opportunities. Who could not
    be chosen for a few turns is left out.
    """
    roster = context.roster
    everyone = np.arange(len(selected))
    members = everyone if roster is None or roster.members is None else everyone[roster.members]
    fair = np.broadcast_to(context.fair(members, len(everyone)), members.shape)
    known = fair >= FIRST_TURNS
    given = selected[members].sum() / max(fair.sum(), 1.0)
    return np.asarray(selected[members[known]] / np.maximum(fair[known] * given, 1.0))
