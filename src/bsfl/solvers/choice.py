"""A cohort with all that it was weighed by, and the best cohorts with and without a client."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from bsfl.records import NOBODY, BoolArray, FloatArray, IntArray
from bsfl.solvers.exact import solve_exact
from bsfl.solvers.problem import energy

Unit = Literal["s", "index", "value"]
"""What an objective counts: seconds (u = -seconds), points of an index of speed, or value alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A cohort S and the objective that it maximises, E(S) = min_S u + (alpha / m) sum_S g.

    Attributes:
        cohort: Sorted dense indices of those that were chosen.
        available: Of those that could be.
        first: Of those who had a place before anything was weighed.
        clients: Of those who were weighed against each other for the m places that were left;
            nobody where no choice was left, or where the policy does not say what it weighs.
        u, g, alpha: The problem that was solved for them.
        unit: What E counts.
        is_exact: Whether the solver always finds the largest E.
    """

    cohort: IntArray
    available: IntArray
    first: IntArray = field(default_factory=lambda: NOBODY)
    clients: IntArray = field(default_factory=lambda: NOBODY)
    u: FloatArray = field(default_factory=lambda: np.zeros(0))
    g: FloatArray = field(default_factory=lambda: np.zeros(0))
    alpha: float = 0.0
    unit: Unit = "value"
    is_exact: bool = True

    def place(self, client: int) -> int | None:
        """Return the position of a client among those who were weighed."""
        at = int(np.searchsorted(self.clients, client))
        return at if at < len(self.clients) and self.clients[at] == client else None

    def weighed(self) -> IntArray:
        """Return the positions of the chosen among those who were weighed."""
        return np.flatnonzero(np.isin(self.clients, self.cohort, assume_unique=True))

    def told(self) -> tuple[FloatArray, FloatArray]:
        """Return for each of the cohort its u and what it is worth in E, (alpha / m) g.

        NaN for whoever had a place before anything was weighed.
        """
        u, worth = np.full((2, len(self.cohort)), np.nan)
        if len(self.clients):
            at = np.minimum(np.searchsorted(self.clients, self.cohort), len(self.clients) - 1)
            known: BoolArray = self.clients[at] == self.cohort
            u[known] = self.u[at[known]]
            worth[known] = self.alpha / np.count_nonzero(known) * self.g[at[known]]
        return u, worth

    def energy(self, cohort: IntArray) -> float:
        """Return E of positions."""
        return energy(self.u, self.g, cohort, self.alpha)

    def moved(self, place: IntArray) -> "Choice | None":
        """Return the same for clients with other numbers: client k is now place[k], none below 0.

        None where somebody who could be chosen has no number any more: then it was another choice.
        """
        if np.any(place[self.available] < 0):
            return None
        return Choice(
            cohort=place[self.cohort],
            available=place[self.available],
            first=place[self.first],
            clients=place[self.clients],
            **{name: getattr(self, name) for name in ("u", "g", "alpha", "unit", "is_exact")},
        )


def best_with(choice: Choice, position: int) -> IntArray:
    r"""Return the positions of a best cohort that contains one of those who were weighed.

    With k a member the pace is at most u_k. So cut every u to it: the m - 1 others maximise
    min min(u, u_k) + (alpha / m) sum g, which is the same problem with a place less.
    """
    m = len(choice.weighed())
    if m == 1:
        return np.array([position])
    others = _others(choice, position)
    u = np.minimum(choice.u[others], choice.u[position])
    best = solve_exact(u, choice.g[others], m - 1, choice.alpha * (m - 1) / m)
    return np.sort(np.append(others[best], position))


def best_without(choice: Choice, position: int) -> IntArray | None:
    """Return the positions of a best cohort without one of them; None if too few are left."""
    m = len(choice.weighed())
    others = _others(choice, position)
    if len(others) < m:
        return None
    return np.sort(others[solve_exact(choice.u[others], choice.g[others], m, choice.alpha)])


def _others(choice: Choice, position: int) -> IntArray:
    """Return all other positions, the chosen first: of equals the solver takes those."""
    chosen = choice.weighed()
    both = np.concatenate([chosen, np.setdiff1d(np.arange(len(choice.clients)), chosen)])
    return np.asarray(both[both != position])


def is_in(client: int, clients: IntArray) -> bool:
    """Return whether a client is one of sorted ones."""
    at = int(np.searchsorted(clients, client))
    found: BoolArray = clients[at : at + 1] == client
    return bool(found.any())
