"""Simulated annealing, the paper's solver, as a reference for the exact one.

The exact solver is faster and never worse; this module measures by how much. In ALSA two cohorts
are neighbours if they differ in one client, which has the lowest u or the lowest g in its cohort.
The paper does not say how a neighbour is drawn; the win rate that it reports needs the second way:

    swap            SA: replace a uniform member by a uniform outsider
    newcomer-first  ALSA: draw an outsider, and u or g with equal probability; if the outsider is
                    above the lowest member, it replaces that member, else a uniform member
    symmetric       ALSA, drawn uniformly from the neighbourhood
    drop-weakest    half of the neighbourhood: replace the member with the lowest u or the lowest
                    g, with equal probability, by a uniform outsider

A step costs O(log m) comparisons: the members are kept sorted by u and by g, and the energy is
updated, never recomputed.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Literal, get_args

import numpy as np

from bsfl import validation
from bsfl.solvers.exact import check_problem
from bsfl.types import FloatArray, IntArray, Rng

Proposal = Literal["swap", "newcomer-first", "symmetric", "drop-weakest"]
PROPOSALS: tuple[Proposal, ...] = get_args(Proposal)


@dataclass(frozen=True, slots=True)
class AnnealingPath:
    """One annealing run.

    Attributes:
        cohort: The best cohort visited, sorted.
        energies: Energy of the current state, at the start and after every step.
    """

    cohort: IntArray
    energies: FloatArray


def solve_annealing(
    u: FloatArray, g: FloatArray, m: int, alpha: float, *, steps: int, proposal: Proposal, rng: Rng
) -> IntArray:
    """Return the best cohort that annealing visits in `steps` steps, sorted."""
    return anneal(u, g, m, alpha, steps=steps, proposal=proposal, rng=rng).cohort


def anneal(
    u: FloatArray, g: FloatArray, m: int, alpha: float, *, steps: int, proposal: Proposal, rng: Rng
) -> AnnealingPath:
    r"""Walk through cohorts at the paper's temperature T_i = Delta_max / log(i + 1).

    A neighbour of higher energy is always accepted, one of lower energy with probability
    exp((E' - E) / T_i). Delta_max = (max u - min u) + alpha (max g - min g) over finite values.
    """
    u, g = check_problem(u, g, m, alpha)
    validation.natural("steps", steps, low=0)
    validation.one_of("proposal", proposal, PROPOSALS)
    if m == len(u):
        only = float(u.min() + alpha * g.mean())
        return AnnealingPath(np.arange(m), np.full(steps + 1, only))
    finite = u[np.isfinite(u)]
    delta_max = float((np.ptp(finite) if len(finite) else 0.0) + alpha * np.ptp(g))
    walk = _Walk(u, g, rng.choice(len(u), m, replace=False), alpha / m)
    draw = Random(int(rng.integers(2**63)))
    propose = PROPOSE[proposal]

    best, best_energy = walk.inside[:], walk.energy
    energies = [walk.energy]
    for i in range(1, steps + 1):
        member, outsider = propose(walk, draw.random)
        pace, sum_g = walk.peek(member, outsider)
        change = pace + sum_g - walk.energy
        if not change < 0 or (delta_max and draw.random() < exp(change * log(i + 1) / delta_max)):
            walk.move(member, outsider, pace, sum_g)
            if walk.energy > best_energy:
                best, best_energy = walk.inside[:], walk.energy
        energies.append(walk.energy)
    return AnnealingPath(np.sort(np.array(best)), np.array(energies))


class _Ranking:
    """A cohort ordered by one value, ties by index.

    Attributes:
        by_rank: All clients by rising value.
        rank: Position of every client in `by_rank`.
        members: Ranks of the members, rising.
    """

    def __init__(self, values: FloatArray, members: list[int]) -> None:
        order = np.argsort(values, kind="stable")
        self.by_rank: list[int] = order.tolist()
        self.rank: list[int] = np.argsort(order).tolist()  # the inverse of a permutation
        self.members: list[int] = sorted(self.rank[client] for client in members)

    def weakest(self, position: int = 0) -> int:
        """Return the member with the lowest value, or the one at a position after it."""
        return self.by_rank[self.members[position]]

    def replace(self, member: int, outsider: int) -> None:
        del self.members[bisect_left(self.members, self.rank[member])]
        insort(self.members, self.rank[outsider])


class _Walk:
    """The current cohort, indexed so that a step is fast.

    Attributes:
        inside, outside: Members and outsiders, in no order.
        by_u, by_g: The cohort ordered by u and by g.
        sum_g: (alpha / m) sum g of the cohort.
        energy: E of the cohort.
    """

    def __init__(self, u: FloatArray, g: FloatArray, cohort: IntArray, scale: float) -> None:
        is_member = np.isin(np.arange(len(u)), cohort)
        self.u: list[float] = u.tolist()
        self.g: list[float] = (scale * g).tolist()
        self.inside: list[int] = np.flatnonzero(is_member).tolist()
        self.outside: list[int] = np.flatnonzero(~is_member).tolist()
        self.place = [0] * len(u)
        for group in (self.inside, self.outside):
            for position, client in enumerate(group):
                self.place[client] = position
        self.by_u = _Ranking(u, self.inside)
        self.by_g = _Ranking(g, self.inside)
        self.sum_g = sum(self.g[client] for client in self.inside)
        self.energy = self.u[self.by_u.weakest()] + self.sum_g

    def peek(self, member: int, outsider: int) -> tuple[float, float]:
        """Return min u and (alpha / m) sum g of the cohort after one replacement."""
        pace, sum_g = self.u[outsider], self.sum_g - self.g[member] + self.g[outsider]
        if len(self.inside) > 1:
            order = self.by_u
            slowest_leaves = order.rank[member] == order.members[0]
            slowest_other = self.u[order.weakest(1 if slowest_leaves else 0)]
            if slowest_other < pace:
                pace = slowest_other
        return pace, sum_g

    def move(self, member: int, outsider: int, pace: float, sum_g: float) -> None:
        position_in, position_out = self.place[member], self.place[outsider]
        self.inside[position_in], self.outside[position_out] = outsider, member
        self.place[outsider], self.place[member] = position_in, position_out
        self.by_u.replace(member, outsider)
        self.by_g.replace(member, outsider)
        self.sum_g, self.energy = sum_g, pace + sum_g


def _pick(clients: list[int], draw: Callable[[], float], n_first: int | None = None) -> int:
    """Return a uniform client, or one among the first few."""
    return clients[int(draw() * (len(clients) if n_first is None else n_first))]


def _swap(walk: _Walk, draw: Callable[[], float]) -> tuple[int, int]:
    return _pick(walk.inside, draw), _pick(walk.outside, draw)


def _newcomer_first(walk: _Walk, draw: Callable[[], float]) -> tuple[int, int]:
    outsider = _pick(walk.outside, draw)
    order = walk.by_u if draw() < 0.5 else walk.by_g
    lowest = order.weakest()
    is_above = order.rank[outsider] > order.rank[lowest]
    return (lowest if is_above else _pick(walk.inside, draw)), outsider


def _drop_weakest(walk: _Walk, draw: Callable[[], float]) -> tuple[int, int]:
    order = walk.by_u if draw() < 0.5 else walk.by_g
    return order.weakest(), _pick(walk.outside, draw)


def _symmetric(walk: _Walk, draw: Callable[[], float]) -> tuple[int, int]:
    """Draw uniformly from the published neighbourhood.

    It has two parts: (a) a weakest member is replaced by any outsider; (b) any other member is
    replaced by an outsider that is weaker, in u or in g, than all members. The outsiders of (b) are
    the clients ranked below the weakest member in u or in g; one that is both would be drawn twice
    as often, so every second one of those draws is repeated from the start.
    """
    slowest, rarest = walk.by_u.weakest(), walk.by_g.weakest()
    weakest = [slowest] if slowest == rarest else [slowest, rarest]
    n_slower, n_rarer = walk.by_u.rank[slowest], walk.by_g.rank[rarest]
    n_dropping = len(weakest) * len(walk.outside)
    n_weakening = (len(walk.inside) - len(weakest)) * (n_slower + n_rarer)
    while True:
        if draw() * (n_dropping + n_weakening) < n_dropping:
            return _pick(weakest, draw), _pick(walk.outside, draw)
        member = _pick(walk.inside, draw)
        while member in weakest:
            member = _pick(walk.inside, draw)
        if draw() * (n_slower + n_rarer) < n_slower:
            return member, _pick(walk.by_u.by_rank, draw, n_slower)
        outsider = _pick(walk.by_g.by_rank, draw, n_rarer)
        if walk.by_u.rank[outsider] >= n_slower:
            return member, outsider


PROPOSE: dict[str, Callable[[_Walk, Callable[[], float]], tuple[int, int]]] = {
    "swap": _swap,
    "newcomer-first": _newcomer_first,
    "symmetric": _symmetric,
    "drop-weakest": _drop_weakest,
}
"""For each proposal, how the member that leaves and the outsider that enters are drawn."""
