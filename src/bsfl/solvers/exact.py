"""The optimal cohort in O(K log K), of which most problems pay only a small part.

The paper treats the choice of a cohort as a combinatorial problem and anneals. But fix the slowest
member: everyone else must be at least as fast, and among those only g matters, so the best cohort
with that slowest member is it plus the m - 1 largest g. One sweep from the fastest client to the
slowest meets all K candidates while keeping the m largest g met so far (docs/exact-solver.md has
the proofs).
"""

import numpy as np

from bsfl.records import BoolArray, FloatArray, IntArray
from bsfl.solvers.problem import check_problem

SAMPLE_SIZE = 4096
"""Clients looked at to guess how fast the fastest few are."""
CHUNK_SIZE = 16384
"""Clients the sweep takes in one bite: small enough to stay in a core's cache."""


def solve_exact(u: FloatArray, g: FloatArray, m: int, alpha: float) -> IntArray:
    r"""Return a cohort S, |S| = m, that maximises min_S u + (alpha / m) sum_S g, sorted.

    Sorting all K clients would dominate, so the sweep runs in two stages: first over the fastest
    ~2 sqrt(K m) only, then over those of the rest whose g exceeds the smallest of the m largest
    met, because nobody else can enter. The answer is exact whatever the first stage's guess.
    """
    u, g = check_problem(u, g, m, alpha)
    pace = _fast_enough(u, m)
    fast = u >= pace
    sweep = _Sweep(*_fastest_first(u, g, fast), m=m, alpha=alpha)
    sweep.extend(*_fastest_first(u, g, (g > sweep.top[0]) & ~fast))
    candidates = np.flatnonzero(u >= sweep.best_pace)
    if len(candidates) > m:
        candidates = candidates[np.argpartition(g[candidates], -m)[-m:]]
        candidates.sort()
    return candidates


def _fast_enough(u: FloatArray, m: int) -> float:
    """Return a pace that roughly 2 sqrt(K m), and surely m, clients reach."""
    n_wanted = int(2 * np.sqrt(len(u) * m))
    if len(u) <= SAMPLE_SIZE or 2 * n_wanted >= len(u):
        return -np.inf
    sample = u[:: len(u) // SAMPLE_SIZE]
    pace = np.quantile(sample, 1 - n_wanted / len(u), method="lower")
    if np.count_nonzero(u >= pace) < m:
        pace = np.partition(u, -m)[-m]
    return float(pace)


def _fastest_first(u: FloatArray, g: FloatArray, who: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return u and g of the marked clients by falling u."""
    u, g = u[who], g[who]
    order = _nearly_falling_order(u) if len(u) > CHUNK_SIZE else np.argsort(-u)
    fallen = u.take(order)
    if not np.all(fallen[:-1] >= fallen[1:]):
        order = np.argsort(-u)
        fallen = u.take(order)
    return fallen, g.take(order)


def _nearly_falling_order(u: FloatArray) -> IntArray:
    """Return the order of falling u, but for values that are almost equal; half of argsort's time.

    Sorting plain integers is several times faster than sorting indices by key, so each value is
    scaled to the high bits of an integer that carries the index in its low bits. (Infinities or
    equal values make all keys alike, and the order arbitrary.)
    """
    index_bits = len(u).bit_length()
    span = float(u.max() - u.min())
    scale = 2.0 ** (62 - index_bits) / span if 0 < span < np.inf else 0.0
    falling = u.max() - u if scale else np.zeros_like(u)
    falling *= scale
    keys = falling.astype(np.int64)
    keys <<= index_bits
    keys |= np.arange(len(u))
    keys.sort()
    keys &= (1 << index_bits) - 1
    return keys


class _Sweep:
    """The m largest g among the clients met so far, and the best threshold on u among them.

    Once all clients with u >= u_j are met, the best cohort at that pace is worth
    f(j) = u_j + (alpha / m) * (sum of the m largest g met). f can rise only where a client enters
    the m largest, so only those are evaluated.

    Attributes:
        top: The m largest g met, ascending.
        best_pace: The threshold with the largest f.
        best_value: That f.
    """

    def __init__(self, u: FloatArray, g: FloatArray, *, m: int, alpha: float) -> None:
        """Meet clients that come by falling u, at least m of them."""
        self.scale = alpha / m
        self.top = np.sort(g[:m])
        self.best_pace = u[m - 1]
        self.best_value = u[m - 1] + self.scale * self.top.sum()
        self.extend(u[m:], g[m:])

    def extend(self, u: FloatArray, g: FloatArray) -> None:
        """Meet more clients by falling u, all slower than those before."""
        for start in range(0, len(u), CHUNK_SIZE):
            self._meet(u[start : start + CHUNK_SIZE], g[start : start + CHUNK_SIZE])

    def _meet(self, u: FloatArray, g: FloatArray) -> None:
        """Evaluate f at every client of a chunk that enters the m largest.

        The i-th client to enter pushes out the smallest of the m largest, and these values rise
        from one to the next, so they are the sorted values of all who were ever inside. Who
        enters is the greatest set in which everyone exceeds the value it pushes out: start with
        all and drop those who do not until nobody does.
        """
        before = self.top.sum()
        enters = g > self.top[0]
        while True:
            u, g = u[enters], g[enters]
            ranked = np.sort(np.concatenate([self.top, g]))
            pushed_out, top = ranked[: len(g)], ranked[len(g) :]
            if len(g) == 0 or u[0] + self.scale * top.sum() <= self.best_value:
                self.top = top  # nobody enters, or no threshold here can beat the best one
                return
            enters = g > pushed_out
            if enters.all():
                break
        values = u + self.scale * (before + np.cumsum(g - pushed_out))
        best = int(np.argmax(values))
        if values[best] > self.best_value:
            self.best_value, self.best_pace = values[best], u[best]
        self.top = top
