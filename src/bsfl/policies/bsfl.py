"""BSFL: bandit scheduling for federated learning (Ben Ami, Cohen, Zhao 2023)."""

from dataclasses import dataclass, field

import numpy as np

from bsfl import checks
from bsfl.confidence import RADII, Radius
from bsfl.errors import InvalidInput
from bsfl.generalization import DEFICITS, Deficit, signed_power
from bsfl.policies.base import Averages, believed_latency, top_m
from bsfl.policies.plugins import plugin
from bsfl.records import OK, FloatArray, IntArray, Observations, RoundContext
from bsfl.solvers import SOLVERS, Solver


@dataclass(slots=True)
class BsflState(Averages):
    """What BSFL has learned: `mean` is the mean of 1/tau, so tau_min may be learned late.

    Attributes:
        loss: Last loss each client reported, NaN if it never did.
        latency_min: Smallest latency seen, the estimate of tau_min; infinite before the first.
    """

    loss: FloatArray = field(init=False)
    latency_min: float = field(init=False)

    def __post_init__(self, n_clients: int) -> None:
        Averages.__post_init__(self, n_clients)
        self.loss = np.full(n_clients, np.nan)
        self.latency_min = np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class BSFL:
    r"""Choose the cohort that maximises min_S ucb_k + (alpha / m) sum_S g_k.

    ucb_k = (mean of tau_min / tau_k) + sqrt((m + 1) ln(t - 1) / c_k) is an optimistic speed, and
    g_k = |r_k - c_k/t|^beta sgn(r_k - c_k/t) rewards clients chosen less than their share r_k.

    Attributes:
        alpha: Weight of generalization against speed, at least 0. g is of the order of m/K, so the
            alpha that matters grows with K/m: with alpha = 0.5 K/m a cohort of clients that were
            never chosen outweighs half the range of speeds.
        beta: Exponent of the generalization term, a natural number.
        tau_min: Smallest possible latency in seconds; estimated from what is seen when None.
        tau_max: Deadline in seconds; latencies beyond it are cut to it. None: no deadline.
        generalization: "equal" (everyone the same share), "weighted" (share by samples x quality),
            "loss" (share by last loss) or a function, see bsfl.generalization.
        radius: "paper", "none" (trust the means) or a function, see bsfl.confidence.
        solver: "exact" or the name of another in bsfl.solvers, or a function.
    """

    alpha: float = 1.0
    beta: int = 1
    tau_min: float | None = None
    tau_max: float | None = None
    generalization: str | Deficit = "equal"
    radius: str | Radius = "paper"
    solver: str | Solver = "exact"

    def __post_init__(self) -> None:
        checks.at_least("alpha", self.alpha, 0.0)
        checks.natural("beta", self.beta)
        for name, value in (("tau_min", self.tau_min), ("tau_max", self.tau_max)):
            if value is not None:
                checks.positive(name, value)
        if self.tau_min is not None and self.tau_max is not None and self.tau_min > self.tau_max:
            raise InvalidInput(
                f"tau_min must not exceed tau_max, got {self.tau_min!r} > {self.tau_max!r}"
            )
        plugin("generalization", self.generalization, DEFICITS)
        plugin("radius", self.radius, RADII)
        plugin("solver", self.solver, SOLVERS)

    def init(self, n_clients: int) -> BsflState:
        """Return the state before the first round."""
        return BsflState(n_clients)

    def select(self, state: BsflState, context: RoundContext, rng: np.random.Generator) -> IntArray:
        """Return the cohort (eq. At): clients never chosen first, then the best of the others.

        The minimum ignores an infinite index, so it alone would not send the last few unexplored
        clients out; taking them first is the initial phase that the paper's proof assumes.
        """
        available, m = context.available, context.cohort_size
        if len(available) <= m:
            return available
        g = self.g(state, context)
        unexplored = state.selected[available] == 0
        first = np.flatnonzero(unexplored)
        if len(first) >= m:
            return available[first[top_m(g[first], m, rng)]]
        others = np.flatnonzero(~unexplored)
        n_places = m - len(first)
        solve = plugin("solver", self.solver, SOLVERS)
        best: IntArray = (
            solve(  # the sum of g stays divided by m, whatever the number of free places
                u=self.ucb(state, context)[others],
                g=g[others],
                m=n_places,
                alpha=self.alpha * n_places / m,
                rng=rng,
            )
        )
        cohort: IntArray = np.sort(np.concatenate([first, others[best]]))
        return available[cohort]

    def observe(self, state: BsflState, context: RoundContext, seen: Observations) -> None:
        """Update counts, mean inverse latencies, losses and the estimate of tau_min."""
        if self.generalization == "loss" and np.any(seen.loss < 0):
            worst = float(np.nanmin(seen.loss))
            raise InvalidInput(f"generalization='loss' needs losses of at least 0, got {worst!r}")
        latency = believed_latency(seen, self.tau_max)
        if self.tau_min is not None:
            latency = np.maximum(latency, self.tau_min)
        state.learn(seen, 1.0 / latency)
        told = ~np.isnan(seen.loss)
        state.loss[seen.clients[told]] = seen.loss[told]
        answered = latency[seen.outcome == OK]
        state.latency_min = float(min(state.latency_min, answered.min(initial=np.inf)))

    def ucb(self, state: BsflState, context: RoundContext) -> FloatArray:
        """Return ucb(k, t-1) of the available clients (eq. update_ucb)."""
        radius = plugin("radius", self.radius, RADII)
        who = context.available
        width = radius(state.evidence(who), t=context.t - 1, m=context.cohort_size)
        return self.speed(state, who) + width

    def speed(self, state: BsflState, clients: IntArray) -> FloatArray:
        """Return the mean of tau_min / tau of clients, 0 for one never observed."""
        tau_min = state.latency_min if self.tau_min is None else self.tau_min
        if not np.isfinite(tau_min):
            tau_min = 1.0 if self.tau_max is None else self.tau_max  # only failures so far
        return state.mean[clients] * tau_min

    def g(self, state: BsflState, context: RoundContext) -> FloatArray:
        """Return the generalization value of the available clients."""
        deficit = plugin("generalization", self.generalization, DEFICITS)
        values = np.asarray(deficit(context.available, state, context), dtype=np.float64)
        if values.shape != context.available.shape or not np.isfinite(values).all():
            raise InvalidInput("generalization must return one finite number for every client")
        return signed_power(values, self.beta)
