"""BSFL: bandit scheduling for federated learning (Ben Ami, Cohen, Zhao 2023)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.estimation.averages import Selections, believed_latency
from bsfl.estimation.indices import INDICES, Evidence, Index, Means
from bsfl.estimation.memory import MEMORIES, Lasting, Memory
from bsfl.estimation.participation import AIMS, Aim
from bsfl.generalization import DEFICITS, Deficit, signed_power
from bsfl.policies.base import top_m
from bsfl.records import NOBODY, FloatArray, IntArray, Report, Rng, RoundContext, pick
from bsfl.registry import check_part, part
from bsfl.requirements import LOSSES_FROM_0, SAMPLES, Needs, require_positive_losses
from bsfl.solvers import SOLVERS, Choice, Solver
from bsfl.state import NothingLearned, State, number

TAIL = {"kind": "lognormal"}
"""Settings of the index that judges clients by the tail of their latencies."""


@dataclass(slots=True, kw_only=True)
class BsflState(Selections):
    """What BSFL has learned beside c_k and the last losses.

    Attributes:
        fastest_s: Smallest latency seen, the estimate of tau_min; infinite before the first.
        slowest_s: Largest latency seen; 0 before the first.
        memory, index, weight: What the parts know.
    """

    fastest_s: float = number(np.inf, low=1e-9)
    slowest_s: float = number(0.0, low=0.0, high=1e12)
    memory: State
    index: State
    weight: State


@dataclass(frozen=True, slots=True, kw_only=True)
class BSFL:
    r"""Choose a cohort without a slow member, and bring back who was chosen too rarely.

    Choose the cohort that maximises min_S ucb_k + (alpha / m) sum_S g_k.

    ucb_k = (mean of tau_min / tau_k) + sqrt((m + 1) ln(t - 1) / c_k) is an optimistic speed, and
    g_k = |r_k - c_k/t|^beta sgn(r_k - c_k/t) rewards clients chosen less than their share r_k.

    Attributes:
        alpha: Weight of generalization against speed, at least 0; or Floor(0.8) or MaxGini(0.1),
            which find it. g is of the order of m/K, so the alpha that matters grows with K/m: with
            alpha = 0.5 K/m a cohort of clients that were never chosen outweighs half the range of
            speeds.
        beta: Exponent of the generalization term, a natural number.
        generalization: "equal" (everyone the same share), "opportunity" (by the rounds in which a
            client could be chosen), "weighted" (by samples x quality), "loss" (by last loss) or a
            function, see bsfl.generalization.
        tau_min: Smallest possible latency in seconds; estimated from what is seen when None.
        tau_max: Deadline in seconds; latencies beyond it are cut to it. None: no deadline.
        index: How clients are judged: Means(radius="paper") or Lognormal(quantile=0.9).
        memory: Which answers count: Lasting(), Discounted(0.98) or Windowed(100).
        solver: "exact" or the name of another in bsfl.solvers, or a function.
    """

    REMEMBERS_BY: ClassVar = ("index", "memory")
    """Settings that say what the state means, so that a saved one can only be read with them."""
    tuning: ClassVar = tuple({"alpha": alpha, "index": TAIL} for alpha in (1.0, 5.0, 20.0))
    example: ClassVar = {"alpha": 3.0}

    alpha: float | Aim = part(AIMS, 1.0)
    beta: int = 1
    generalization: str | Deficit = "equal"
    tau_min: float | None = None
    tau_max: float | None = None
    index: Index = part(INDICES, Means())
    memory: Memory = part(MEMORIES, Lasting())
    solver: str | Solver = "exact"

    def __post_init__(self) -> None:
        checks.natural("beta", self.beta)
        for name, value in (("tau_min", self.tau_min), ("tau_max", self.tau_max)):
            if value is not None:
                checks.seconds(name, value)
        if self.tau_min is not None and self.tau_max is not None and self.tau_min > self.tau_max:
            raise InvalidInput(
                f"tau_min must not exceed tau_max, got {self.tau_min!r} > {self.tau_max!r}"
            )
        DEFICITS.resolve("generalization", self.generalization)
        SOLVERS.resolve("solver", self.solver)
        check_part("index", self.index, Index, INDICES)
        check_part("memory", self.memory, Memory, MEMORIES)
        if not isinstance(self.alpha, Aim):
            checks.at_least("alpha", self.alpha, 0.0)
        elif self.generalization not in ("equal", "opportunity"):
            raise InvalidInput(
                f"alpha={self.alpha} is about equal shares, not {self.generalization!r}"
            )

    @property
    def needs(self) -> Needs:
        """What clients must tell: their sizes or losses, where g asks for them."""
        return {"weighted": SAMPLES, "loss": LOSSES_FROM_0}.get(
            str(self.generalization), frozenset()
        )

    def init(self, n_clients: int) -> BsflState:
        return BsflState.of(
            n_clients,
            memory=self.memory.init(n_clients),
            index=self.index.init(),
            weight=self.alpha.init() if isinstance(self.alpha, Aim) else NothingLearned(),
        )

    def select(self, state: BsflState, context: RoundContext, rng: Rng) -> IntArray:
        return self.choice(state, context, rng).cohort

    def choice(self, state: BsflState, context: RoundContext, rng: Rng) -> Choice:
        """Return the cohort (eq. At): clients never chosen first, then the best of the others.

        The minimum ignores an infinite index, so it alone would not send the last few unexplored
        clients out; taking them first is the initial phase that the paper's proof assumes.
        """
        available, m = context.available, context.cohort_size
        if len(available) <= m:
            return Choice(cohort=available, available=available)
        g = self.g(state, context)
        unexplored = pick(state.selected, available) == 0
        first = np.flatnonzero(unexplored) if self.index.explores_first else NOBODY
        if len(first) >= m:
            return Choice(
                cohort=available[first[top_m(g[first], m, rng)]],
                available=available,
                clients=available[first],
                u=np.zeros(len(first)),
                g=g[first],
                alpha=float(m),
            )
        others = np.flatnonzero(~unexplored) if len(first) else np.arange(len(available))
        n_places = m - len(first)
        u, g = pick(self.ucb(state, context), others), pick(g, others)
        # the sum of g stays divided by m, whatever the number of free places
        alpha = self.weight(state, context) * n_places / m
        solve = SOLVERS.resolve("solver", self.solver)
        best: IntArray = solve(u=u, g=g, m=n_places, alpha=alpha, rng=rng)
        return Choice(
            cohort=available[np.sort(np.concatenate([first, others[best]]))],
            available=available,
            first=available[first],
            clients=pick(available, others),
            u=u,
            g=g,
            alpha=alpha,
            unit="index",
            is_exact=self.solver in ("exact", "exhaustive"),
        )

    def observe(self, state: BsflState, context: RoundContext, report: Report) -> None:
        if self.generalization == "loss":
            require_positive_losses("bsfl", report)
        latency = believed_latency(report, self.tau_max)
        if self.tau_min is not None:
            latency = np.maximum(latency, self.tau_min)
        state.book(report)
        answered = latency[report.answered]
        state.fastest_s = float(min(state.fastest_s, answered.min(initial=np.inf)))
        finite = latency[np.isfinite(latency)]
        state.slowest_s = float(max(state.slowest_s, finite.max(initial=0.0)))
        values = self.index.values(latency, self._worst(state))
        known = ~np.isnan(values)  # failures alone may say nothing yet: they count as silence
        clients, values = report.clients[known], values[known]
        stats = self.memory.recall(state.memory, clients, context.t)
        self.index.learn(state.index, clients, values, stats, context.roster)
        self.memory.add(state.memory, clients, context.t, values)
        if isinstance(self.alpha, Aim) and len(report.chosen):  # once a round, however reported
            self.alpha.adapt(state.weight, state.selected - state.late, context)

    def ucb(self, state: BsflState, context: RoundContext) -> FloatArray:
        """Return ucb(k, t-1) of the available clients (eq. update_ucb)."""
        clients, t = context.available, context.t - 1
        evidence = Evidence(
            clients=clients,
            selected=pick(state.selected, clients),
            stats=self.memory.recall(state.memory, clients, t),
            rounds=self.memory.rounds(t),
            cohort_size=context.cohort_size,
            tau_min=self._tau_min(state),
            worst_s=self._worst(state),
            roster=context.roster,
        )
        return self.index.speeds(state.index, evidence)

    def figures(self, state: BsflState, context: RoundContext) -> dict[str, float]:
        """Return alpha, given or found."""
        return {"alpha": self.weight(state, context)}

    def weight(self, state: BsflState, context: RoundContext) -> float:
        if isinstance(self.alpha, Aim):
            return self.alpha.weight(state.weight, context, len(state.selected))
        return self.alpha

    def g(self, state: BsflState, context: RoundContext) -> FloatArray:
        deficit: Any = DEFICITS.resolve("generalization", self.generalization)
        values = np.array(deficit(context.available, state, context), dtype=np.float64)
        if values.shape != context.available.shape or not np.isfinite(values).all():
            raise InvalidInput("generalization must return one finite number for every client")
        return signed_power(values, self.beta)

    def _tau_min(self, state: BsflState) -> float:
        tau_min = state.fastest_s if self.tau_min is None else self.tau_min
        if np.isfinite(tau_min):
            return tau_min
        return 1.0 if self.tau_max is None else self.tau_max  # only failures so far

    def _worst(self, state: BsflState) -> float:
        """Return the latency that stands for an answer that never came, 0 if none is known."""
        return self.tau_max or state.slowest_s
