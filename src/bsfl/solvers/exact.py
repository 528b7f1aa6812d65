"""The optimal cohort in O(K log K); most problems take only a small fraction of that.

The paper treats selection as a combinatorial problem and anneals. But fix the slowest client: all
others must be at least as fast, and among those only g matters, so the best cohort with that
slowest client consists of it and the m - 1 largest g. One sweep from the fastest client to the
slowest evaluates all K candidates while keeping the m largest g so far (docs/exact-solver.md has
the proofs).
"""

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.types import FloatArray, IntArray

SAMPLE_SIZE = 4096
"""Size of the sample from which the speed of the fastest clients is estimated."""
CHUNK_SIZE = 16384
"""Clients that the sweep evaluates at a time, few enough to stay in a core's cache."""


def energy(u: FloatArray, g: FloatArray, cohort: IntArray, alpha: float) -> float:
    """Return E(cohort) = min u + (alpha / m) sum g.

    >>> energy(np.array([0.9, 0.2, 0.5]), np.array([0.0, 1.0, 3.0]), np.array([0, 2]), alpha=2.0)
    3.5
    """
    return float(u[cohort].min() + alpha * g[cohort].mean())


def check_problem(
    u: npt.ArrayLike, g: npt.ArrayLike, m: int, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return u and g as arrays after checking that the problem is well posed."""
    u, g = np.asarray(u, dtype=np.float64), np.asarray(g, dtype=np.float64)
    if u.ndim != 1 or u.shape != g.shape or len(u) == 0:
        raise InvalidInput(
            f"u and g must be one-dimensional, not empty and equally long, "
            f"got shapes {u.shape} and {g.shape}"
        )
    if validation.natural("m", m) > len(u):
        raise InvalidInput(f"m must be between 1 and the {len(u):,} clients, got {m}")
    validation.at_least("alpha", alpha, 0.0)
    if not u.min() > -np.inf:  # a NaN anywhere makes the minimum NaN
        raise InvalidInput("u must hold no NaN and no -inf")
    largest = np.maximum(g.max(), -g.min())
    if not np.isfinite(float(alpha) * float(largest) * len(g)):
        raise InvalidInput("g must hold finite numbers, also when multiplied by alpha")
    return u, g


def solve_exact(u: FloatArray, g: FloatArray, m: int, alpha: float) -> IntArray:
    r"""Return a cohort S, |S| = m, that maximises min_S u + (alpha / m) sum_S g, sorted.

    Sorting all K clients would dominate, so the sweep runs in two stages: first over the fastest
    ~2 sqrt(K m) only, then over the other clients whose g exceeds the smallest of the m largest so
    far, because no other can enter, unless they are so slow that even the m largest g of all could
    not compensate. The result is exact whatever the estimate of the first stage.
    """
    u, g = check_problem(u, g, m, alpha)
    pace = _first_pace(u, m)
    fast = u >= pace
    first = _without_surplus(u, g, fast.nonzero()[0], pace, m)
    sweep = _Sweep(*_fastest_first(u[first], g[first]), m=m, alpha=alpha)
    rest = ((g > sweep.top[0]) & ~fast).nonzero()[0]
    rest = rest[u[rest] > sweep.slowest_of_use(g[rest])]
    sweep.extend(*_fastest_first(u[rest], g[rest]))
    return _largest(g, (u >= sweep.best_pace).nonzero()[0], m)


def _without_surplus(
    u: FloatArray, g: FloatArray, clients: IntArray, pace: float, m: int
) -> IntArray:
    """Return clients without those that no cohort needs: of many just at the pace, all but m.

    Unseen clients often have equal u.
    """
    tied = u[clients] == pace
    if np.count_nonzero(tied) <= CHUNK_SIZE + m:
        return clients
    equals = clients[tied]
    best = equals[np.argpartition(g[equals], -m)[-m:]]
    return np.concatenate([clients[~tied], best])


def _largest(g: FloatArray, clients: IntArray, m: int) -> IntArray:
    """Return the m clients with the largest g, the first ones of equals."""
    values = g[clients]
    cut = np.partition(values, -m)[-m]
    above = (values > cut).nonzero()[0]
    tied = (values == cut).nonzero()[0][: m - len(above)]
    places: IntArray = np.sort(np.concatenate([above, tied]))
    return clients[places]


def _first_pace(u: FloatArray, m: int) -> float:
    """Return a pace that roughly 2 sqrt(K m), and at least m, clients reach."""
    n_wanted = int(2 * np.sqrt(len(u) * m))
    if len(u) <= SAMPLE_SIZE or 2 * n_wanted >= len(u):
        return -np.inf
    sample = u[:: len(u) // SAMPLE_SIZE]
    pace = np.quantile(sample, 1 - n_wanted / len(u), method="lower")
    if np.count_nonzero(u >= pace) < m:
        pace = np.partition(u, -m)[-m]
    return float(pace)


def _fastest_first(u: FloatArray, g: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return u and g by falling u."""
    order = _nearly_falling_order(u) if len(u) > CHUNK_SIZE else np.argsort(-u)
    fallen = u.take(order)
    if not (fallen[:-1] >= fallen[1:]).all():
        order = np.argsort(-u)
        fallen = u.take(order)
    return fallen, g.take(order)


def _nearly_falling_order(u: FloatArray) -> IntArray:
    """Return the order of falling u, but for values that are almost equal; half of argsort's time.

    Sorting plain integers is several times faster than sorting indices by key, so each value is
    scaled to the high bits of an integer that carries the index in its low bits. Infinite or equal
    values cannot be scaled and stay in place.
    """
    index_bits = len(u).bit_length()
    span = float(u.max()) - float(u.min())
    if not 1e-200 < span < 1e200:
        return np.arange(len(u))
    falling = u.max() - u
    falling *= 2.0 ** (62 - index_bits) / span
    keys: IntArray = falling.astype(np.int64)
    keys <<= index_bits
    keys |= np.arange(len(u))
    keys.sort()
    keys &= (1 << index_bits) - 1
    return keys


class _Sweep:
    """The m largest g of the clients so far, and the best threshold on u among them.

    After all clients with u >= u_j, the best cohort at that pace has the value
    f(j) = u_j + (alpha / m) * (sum of the m largest g so far). f can rise only when a client enters
    the m largest, so only those are evaluated.

    Attributes:
        top: The m largest g so far, ascending.
        best_pace: The threshold with the largest f.
        best_value: That f.
    """

    def __init__(self, u: FloatArray, g: FloatArray, *, m: int, alpha: float) -> None:
        """Start with clients sorted by falling u, at least m of them."""
        self.scale = alpha / m
        self.top = np.sort(g[:m])
        self.best_pace = u[m - 1]
        self.best_value = u[m - 1] + self.scale * self.top.sum()
        self.extend(u[m:], g[m:])

    def slowest_of_use(self, g: FloatArray) -> float:
        """Return a pace at which no cohort can beat the best, if these g are all that remain."""
        m = len(self.top)
        known = np.concatenate([self.top, g])
        largest = np.partition(known, -m)[-m:].sum()
        return float(self.best_value - self.scale * largest)

    def extend(self, u: FloatArray, g: FloatArray) -> None:
        """Evaluate more clients sorted by falling u, all slower than those before."""
        size = max(CHUNK_SIZE, len(self.top))
        for start in range(0, len(u), size):
            self._evaluate(u[start : start + size], g[start : start + size])

    def _evaluate(self, u: FloatArray, g: FloatArray) -> None:
        """Evaluate f at every client of a chunk that enters the m largest.

        The i-th client to enter pushes out the smallest of the m largest, and these values rise
        from one to the next, so they are the sorted values of all clients that were ever inside.
        The clients that enter are the greatest set in which each exceeds the value it pushes out:
        start with all, and drop those that do not, until none is dropped.
        """
        enters = g > self.top[0]
        while True:
            u, g = u[enters], g[enters]
            ranked = np.sort(np.concatenate([self.top, g]))
            pushed_out, top = ranked[: len(g)], ranked[len(g) :]
            if len(g) == 0 or u[0] + self.scale * top.sum() <= self.best_value:
                self.top = top  # no client enters, or no threshold here can beat the best one
                return
            enters = g > pushed_out
            if enters.all():
                break
        # summed from the end, so that values that were pushed out leave no rounding error
        gains_after = np.append(np.cumsum((g - pushed_out)[:0:-1])[::-1], 0.0)
        values = u + self.scale * (top.sum() - gains_after)
        best = int(np.argmax(values))
        if values[best] > self.best_value:
            self.best_value, self.best_pace = values[best], u[best]
        self.top = top
