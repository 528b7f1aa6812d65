"""BSFL: bandit scheduling for federated learning (Ben Ami, Cohen, Zhao 2023)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.estimation import lognormal
from bsfl.estimation.averages import believed_latency
from bsfl.estimation.memory import BsflState, ClientStats, Discounted, Lasting, Memory, Windowed
from bsfl.estimation.participation import Aim, next_alpha
from bsfl.estimation.radii import RADII, Radius
from bsfl.generalization import DEFICITS, Deficit, signed_power
from bsfl.policies.base import top_m
from bsfl.policies.plugins import plugin
from bsfl.records import (
    NOBODY,
    OK,
    FloatArray,
    IntArray,
    Report,
    RoundContext,
    pick,
)
from bsfl.requirements import keep_losses
from bsfl.solvers import SOLVERS, Solver


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
        radius: "paper", "cucb" or "bernstein" (narrower), "none" (trust the means) or a function,
            see bsfl.estimation.radii.
        solver: "exact" or the name of another in bsfl.solvers, or a function.
        discount: An answer of s rounds ago counts discount^s; None: for ever.
        window: Only answers of the last rounds count, between half and all of so many; None: all.
        speeds: "means" of 1/tau as in the paper, or "lognormal": a hierarchical model of latencies
            that judges clients nobody has met by their features, see bsfl.estimation.lognormal.
        quantile: With "lognormal", judge clients by this quantile of their latency, such as 0.9,
            instead of the middle: a steady client is worth more than a jittery one.
        optimism: With "lognormal", how many standard deviations of what is not known yet count in
            a client's favour.
        floor: Adapt alpha so that no client falls below this part of its share; see
            for_participation. None: alpha as given.
        max_gini: Adapt alpha so that the Gini coefficient of selections stays below it.
    """

    REMEMBERS_BY: ClassVar = ("speeds", "discount", "window")
    """Settings that say what the state means, so that a saved one can only be read with them."""

    alpha: float = 1.0
    beta: int = 1
    tau_min: float | None = None
    tau_max: float | None = None
    generalization: str | Deficit = "equal"
    radius: str | Radius = "paper"
    solver: str | Solver = "exact"
    discount: float | None = None
    window: int | None = None
    speeds: Literal["means", "lognormal"] = "means"
    quantile: float | None = None
    optimism: float = 1.0
    floor: float | None = None
    max_gini: float | None = None

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
        checks.one_of("speeds", self.speeds, ("means", "lognormal"))
        checks.at_least("optimism", self.optimism, 0.0)
        if self.quantile is not None:
            checks.between("quantile", self.quantile, 0.01, 0.999)
            if self.speeds != "lognormal":
                raise InvalidInput("quantile belongs to speeds='lognormal'")
        if self.discount is not None and self.window is not None:
            raise InvalidInput("discount and window are two ways to forget; give one of them")
        if self.floor is not None and self.max_gini is not None:
            raise InvalidInput("floor and max_gini both set alpha; give one of them")
        for name in ("floor", "max_gini"):
            if getattr(self, name) is not None:
                checks.between(name, getattr(self, name), 0.0, 1.0)
                if self.generalization != "equal":
                    raise InvalidInput(f"{name} is about equal shares: generalization='equal'")
        _ = self.memory

    @classmethod
    def for_participation(
        cls, *, floor: float | None = None, max_gini: float | None = None, **settings: Any
    ) -> Self:
        """Return a BSFL that finds alpha by itself.

        Args:
            floor: No client below this part of its fair share: 0.8 for 80 %.
            max_gini: Or: selections no less even than this Gini coefficient.
            settings: Any other setting of BSFL.
        """
        if floor is None and max_gini is None:
            raise InvalidInput("for_participation needs floor or max_gini")
        if "alpha" in settings:
            raise InvalidInput("for_participation finds alpha by itself; leave it out")
        return cls(floor=floor, max_gini=max_gini, **settings)

    @property
    def memory(self) -> Memory:
        """How answers are remembered."""
        if self.discount is not None:
            return Discounted(self.discount)
        return Lasting() if self.window is None else Windowed(self.window)

    def init(self, n_clients: int) -> BsflState:
        """Return the state before the first round."""
        return self.memory.init(n_clients)

    def select(self, state: BsflState, context: RoundContext, rng: np.random.Generator) -> IntArray:
        """Return the cohort (eq. At): clients never chosen first, then the best of the others.

        The minimum ignores an infinite index, so it alone would not send the last few unexplored
        clients out; taking them first is the initial phase that the paper's proof assumes.
        """
        available, m = context.available, context.cohort_size
        if len(available) <= m:
            return available
        g = self.g(state, context)
        unexplored = pick(state.selected, available) == 0
        first = np.flatnonzero(unexplored) if self.speeds == "means" else NOBODY
        if len(first) >= m:
            return available[first[top_m(g[first], m, rng)]]
        others = np.flatnonzero(~unexplored) if len(first) else np.arange(len(available))
        n_places = m - len(first)
        solve = plugin("solver", self.solver, SOLVERS)
        best: IntArray = (
            solve(  # the sum of g stays divided by m, whatever the number of free places
                u=pick(self.ucb(state, context), others),
                g=pick(g, others),
                m=n_places,
                alpha=self.weight(state, context) * n_places / m,
                rng=rng,
            )
        )
        cohort: IntArray = np.sort(np.concatenate([first, others[best]]))
        return available[cohort]

    def observe(self, state: BsflState, context: RoundContext, report: Report) -> None:
        """Update counts, mean inverse latencies, losses and the estimate of tau_min."""
        if self.generalization == "loss" and np.any(report.loss < 0):
            worst = float(np.nanmin(report.loss))
            raise InvalidInput(f"generalization='loss' needs losses of at least 0, got {worst!r}")
        latency = believed_latency(report, self.tau_max)
        if self.tau_min is not None:
            latency = np.maximum(latency, self.tau_min)
        state.selected[report.chosen] += 1
        answered = latency[report.outcome == OK]
        state.latency_min = float(min(state.latency_min, answered.min(initial=np.inf)))
        finite = latency[np.isfinite(latency)]
        state.latency_max = float(max(state.latency_max, finite.max(initial=0.0)))
        clients = report.clients
        if self.speeds == "lognormal":
            if not self._worst(state):  # failures alone say nothing yet: they count as silence
                clients, latency = NOBODY, latency[:0]
            values = np.log(np.where(np.isfinite(latency), latency, self._worst(state)))
            known = self.memory.recall(state, clients, context.t)
            lognormal.learn(state, clients, values, known, context.roster)
        else:
            values = 1.0 / latency
        self.memory.add(state, clients, context.t, values)
        keep_losses(state.loss, report)
        if self.aim and len(report.chosen):  # once a round, in however many reports it comes
            state.alpha = next_alpha(self.aim, state, context)

    def ucb(self, state: BsflState, context: RoundContext) -> FloatArray:
        """Return ucb(k, t-1) of the available clients (eq. update_ucb)."""
        clients, t = context.available, context.t - 1
        known = self.memory.recall(state, clients, t)
        tau_min = self._tau_min(state)
        unanswered = pick(state.selected, clients) - pick(state.observed, clients)
        if self.speeds == "lognormal":
            known = self._with_worst(state, clients, known)
            judged = lognormal.judge(state, clients, known, context.roster)
            bonus = self.optimism * np.sqrt(judged.variance)
            return tau_min * np.exp(bonus - lognormal.quantile_of(judged, self.quantile))
        radius = plugin("radius", self.radius, RADII)
        width = radius(
            known.count + unanswered,  # c_k counts selections, or the silent were asked for ever
            t=self.memory.rounds(t),
            m=context.cohort_size,
            variance=lambda: tau_min**2 * steadied_variance(known),
        )
        return tau_min * known.mean + width

    def weight(self, state: BsflState, context: RoundContext) -> float:
        """Return alpha: as given, or as a floor has led to."""
        if self.aim is None:
            return self.alpha
        return state.alpha or self.aim.start(context, len(state.selected))

    @property
    def aim(self) -> Aim | None:
        """What alpha is adapted to; None: nothing."""
        if self.floor is not None:
            return Aim("floor", self.floor)
        return None if self.max_gini is None else Aim("gini", self.max_gini)

    def _with_worst(self, state: BsflState, clients: IntArray, known: ClientStats) -> ClientStats:
        """Let clients that were asked and never answered count as if they had shown the worst."""
        asked = pick(state.selected, clients)
        silent = (asked > 0) & (pick(state.observed, clients) == 0)
        if not silent.any():
            return known
        worst = np.log(self._worst(state) or 1.0)
        return ClientStats(
            np.where(silent, asked, known.count), np.where(silent, worst, known.mean), known.spread
        )

    def _tau_min(self, state: BsflState) -> float:
        tau_min = state.latency_min if self.tau_min is None else self.tau_min
        if np.isfinite(tau_min):
            return tau_min
        return 1.0 if self.tau_max is None else self.tau_max  # only failures so far

    def _worst(self, state: BsflState) -> float:
        """Return the latency that stands for an answer that never came, 0 if none is known."""
        return self.tau_max or state.latency_max

    def g(self, state: BsflState, context: RoundContext) -> FloatArray:
        """Return the generalization value of the available clients."""
        deficit = plugin("generalization", self.generalization, DEFICITS)
        values = np.asarray(deficit(context.available, state, context), dtype=np.float64)
        if values.shape != context.available.shape or not np.isfinite(values).all():
            raise InvalidInput("generalization must return one finite number for every client")
        return signed_power(values, self.beta)


PRIOR_ANSWERS = 3.0
"""What the fleet's own coefficient of variation is worth beside a client's few answers."""


def steadied_variance(known: ClientStats) -> FloatArray:
    """Return the variance of each client's values, its few answers steadied by the fleet's.

    V_k = (spread_k + n0 (v mean_k)^2) / (c_k - 1 + n0), where v is the coefficient of variation
    within clients over the whole fleet. Two equal answers do not make a client steady.
    """
    freedom = np.maximum(known.count - 1, 0.0)
    report = (freedom > 0) & (known.mean > 0)
    relative = known.spread[report] / known.mean[report] ** 2
    v2 = float(relative.sum() / freedom[report].sum()) if report.any() else 1.0
    variance: FloatArray = (known.spread + PRIOR_ANSWERS * v2 * known.mean**2) / (
        freedom + PRIOR_ANSWERS
    )
    return variance
