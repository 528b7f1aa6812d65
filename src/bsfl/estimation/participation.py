"""A weight that finds itself: alpha is moved until participation is what was asked for."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bsfl.estimation.memory import BsflState
from bsfl.fairness import gini
from bsfl.records import FloatArray, RoundContext

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


@dataclass(frozen=True, slots=True)
class Aim:
    """What is asked for: the smallest part of a fair share ("floor"), or the largest Gini."""

    kind: Literal["floor", "gini"]
    value: float

    def start(self, context: RoundContext, n_known: int) -> float:
        """Return the first alpha, of the order that makes participation outweigh speed."""
        return 2.0 * turn(context, n_known)

    def excess(self, state: BsflState, context: RoundContext) -> float:
        """Return how much better than asked for participation is, below 0 if worse."""
        share = served(state, context)
        if self.kind == "gini":
            return self.value - gini(share) - MARGIN
        turns = context.t / turn(context, len(state.selected))
        step = 0.5 / max(turns, 1.0)  # half a selection: shares move in steps of whole ones
        return float(share.min(initial=1.0)) - self.value - MARGIN - step


def turn(context: RoundContext, n_known: int) -> float:
    """Return K/m, the rounds in which the whole fleet can be chosen once."""
    return max(context.n_members(n_known), 1) / context.cohort_size


def served(state: BsflState, context: RoundContext) -> FloatArray:
    """Return each member's selections over its fair number of them so far.

    The fair number is its part of what all members were given, by the rounds that each was there:
    cohorts may have had other sizes before, and the fleet too. Who has not been there for a few
    turns is left out.
    """
    roster = context.roster
    everyone = np.arange(len(state.selected))
    members = everyone if roster is None or roster.members is None else everyone[roster.members]
    rounds = np.broadcast_to(context.rounds(members), members.shape)
    fair = rounds * state.selected[members].sum() / max(rounds.sum(), 1)
    known = rounds >= FIRST_TURNS * turn(context, len(everyone))
    share: FloatArray = state.selected[members[known]] / np.maximum(fair[known], 1.0)
    return share


def next_alpha(aim: Aim, state: BsflState, context: RoundContext) -> float:
    """Return alpha after a round: larger when participation is worse than asked for.

    Every so many rounds alpha is multiplied by UP^(-e), or by DOWN^(-e) for a positive excess e, in
    units of 0.1 and cut to -1..1. The cost, O(K) then, is O(cohort) a round on average.
    """
    n_known = len(state.selected)
    rounds = turn(context, n_known)
    alpha = state.alpha or aim.start(context, n_known)
    if context.t < FIRST_TURNS * rounds or context.t % max(1, round(rounds / CORRECTIONS)):
        return alpha
    change = float(np.clip(aim.excess(state, context) / 0.1, -1.0, 1.0))
    factor = (DOWN if change > 0 else UP) ** -change
    return float(np.clip(alpha * factor, LIMITS[0] * rounds, LIMITS[1] * rounds))
