"""BSFL: bandit scheduling for federated learning (Ben Ami, Cohen, Zhao 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.registry import check_component, component
from bsfl._core.state import ClientState, number
from bsfl.errors import InvalidInput
from bsfl.estimators import lognormal
from bsfl.estimators.generalization import DEFICITS, Deficit, generalization_term
from bsfl.estimators.indices import INDICES, Evidence, Index, UCBIndex
from bsfl.estimators.moments import MEMORIES, CumulativeMean, Memory, censored_latency
from bsfl.estimators.participation import TARGETS, LearnedWeight, ParticipationTarget
from bsfl.policy import LOSSES_FROM_0, SAMPLES, Needs, Policy, Selection, top_m
from bsfl.solvers import SOLVERS, Solver
from bsfl.types import NO_CLIENTS, FloatArray, Rng, RoundContext, RoundReport, State, pick


@dataclass(slots=True, kw_only=True)
class BsflState(ClientState):
    """What BSFL has learned beside the counts of the task.

    Attributes:
        fastest_s: Smallest latency observed, the estimate of tau_min; infinite before the first.
        slowest_s: Largest latency observed; 0 before the first.
        memory, index, weight: States of the components.
    """

    fastest_s: float = number(np.inf, low=1e-9, high=1e12)
    slowest_s: float = number(0.0, low=0.0, high=1e12)
    memory: State
    index: State
    weight: LearnedWeight

    def check(self) -> None:
        """Check that latencies can be predicted."""
        if isinstance(self.index, lognormal.Population):
            lognormal.check_latencies(self.memory, self.slowest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BSFL(Policy):
    r"""Select a cohort without a slow client, and one that was not selected for long.

    Select the cohort that maximises min_S ucb_k + (alpha / m) sum_S g_k.

    ucb_k = (mean of tau_min / tau_k) + sqrt((m + 1) ln(t - 1) / c_k) is an optimistic speed, and
    g_k = |r_k - c_k/t|^beta sgn(r_k - c_k/t) rewards clients selected less than their share r_k.

    >>> from bsfl import Scheduler
    >>> scheduler = Scheduler(BSFL(alpha=1.0), cohort_size=2)
    >>> cohort = scheduler.select(["ann", "bob", "cem"], cohort_size=3)
    >>> scheduler.observe({"ann": 5.0, "bob": 1.0, "cem": 2.0})
    {}
    >>> scheduler.select()
    ['bob', 'cem']

    Attributes:
        alpha: Weight of generalization against speed, at least 0; or MinParticipation(0.8) or
            MaxGini(0.1), which learn it. g is of the order of m/K, so the alpha that matters grows
            with K/m: with alpha = 0.5 K/m a cohort of unseen clients outweighs half the range of
            speeds.
        beta: Exponent of the generalization term, a natural number.
        generalization: "equal" (the same share for all clients), "opportunity" (by the rounds in
            which a client was available), "weighted" (by samples x quality), "loss" (by last loss)
            or a function, see bsfl.estimators.generalization.
        tau_min: Smallest possible latency in seconds; None: the smallest one observed.
        tau_max: Deadline in seconds; latencies beyond it are clipped. None: no deadline.
        index: The speed index of clients: UCBIndex(confidence_width="paper") or
            Lognormal(quantile=0.9).
        memory: Which responses count: CumulativeMean(), Discounted(0.98) or SlidingWindow(100).
        solver: "exact" or the name of another in bsfl.solvers, or a function.
    """

    state_keys: ClassVar = ("index", "memory")
    search_space: ClassVar = tuple(
        {"alpha": alpha, "index": {"kind": "lognormal"}} for alpha in (1.0, 5.0, 20.0)
    )
    example: ClassVar = {"alpha": 3.0}

    alpha: float | ParticipationTarget = component(TARGETS, 1.0)
    beta: int = 1
    generalization: str | Deficit = "equal"
    tau_min: float | None = None
    tau_max: float | None = None
    index: Index = component(INDICES, UCBIndex())
    memory: Memory = component(MEMORIES, CumulativeMean())
    solver: str | Solver = "exact"

    def __post_init__(self) -> None:
        validation.natural("beta", self.beta)
        for name, value in (("tau_min", self.tau_min), ("tau_max", self.tau_max)):
            if value is not None:
                validation.seconds(name, value)
        if self.tau_min is not None and self.tau_max is not None and self.tau_min > self.tau_max:
            raise InvalidInput(
                f"tau_min must not exceed tau_max, got {self.tau_min!r} > {self.tau_max!r}"
            )
        DEFICITS.resolve("generalization", self.generalization)
        SOLVERS.resolve("solver", self.solver)
        check_component("index", self.index, Index, INDICES)
        check_component("memory", self.memory, Memory, MEMORIES)
        if not isinstance(self.alpha, ParticipationTarget):
            validation.at_least("alpha", self.alpha, 0.0)
        elif self.generalization not in ("equal", "opportunity"):
            raise InvalidInput(
                f"alpha={self.alpha} is a target for equal shares, not {self.generalization!r}"
            )

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """What clients must report: samples or losses, if g uses them."""
        return {"weighted": SAMPLES, "loss": LOSSES_FROM_0}.get(
            str(self.generalization), frozenset()
        )

    def init(self, n_clients: int) -> BsflState:
        return BsflState.of(
            n_clients,
            memory=self.memory.init(n_clients),
            index=self.index.init(),
            weight=LearnedWeight(),
        )

    def select(self, state: BsflState, context: RoundContext, rng: Rng) -> Selection:
        """Return the cohort (eq. At): unseen clients first, then the best of the others.

        The minimum ignores an infinite index, so it alone would not select the last few unseen
        clients; selecting them first is the initial phase that the paper's proof assumes.
        """
        available, m = context.available, context.n_invited
        if len(available) <= m:
            return Selection(clients=available)
        g = generalization_term(self.generalization, context, self.beta)
        unseen = pick(context.task.invitations, available) == 0
        first = np.flatnonzero(unseen) if self.index.explores_first else NO_CLIENTS
        if len(first) >= m:
            return Selection(
                clients=available[first[top_m(g[first], m, rng)]],
                candidates=available[first],
                u=np.zeros(len(first)),
                g=g[first],
                alpha=float(m),
            )
        others = np.flatnonzero(~unseen) if len(first) else np.arange(len(available))
        n_places = m - len(first)
        u, g = pick(self.ucb(state, context), others), pick(g, others)
        # the sum of g stays divided by m, whatever the number of free places
        alpha = self.weight(state, context) * n_places / m
        solve = SOLVERS.resolve("solver", self.solver)
        best = solve(u=u, g=g, m=n_places, alpha=alpha, rng=rng)
        return Selection(
            clients=available[np.sort(np.concatenate([first, others[best]]))],
            reserved=available[first],
            candidates=pick(available, others),
            u=u,
            g=g,
            alpha=alpha,
            unit="index",
            is_exact=self.solver in ("exact", "exhaustive"),
        )

    def observe(self, state: BsflState, context: RoundContext, report: RoundReport) -> None:
        latency = censored_latency(report, self.tau_max)
        if self.tau_min is not None:
            latency = np.maximum(latency, self.tau_min)
        responses = latency[report.responded]
        state.fastest_s = float(min(state.fastest_s, responses.min(initial=np.inf)))
        finite = latency[np.isfinite(latency)]
        state.slowest_s = float(max(state.slowest_s, finite.max(initial=0.0)))
        values = self.index.values(latency, self._worst(state))
        known = ~np.isnan(values)  # a failure before any latency has no value yet
        clients, values = report.clients[known], values[known]
        stats = self.memory.recall(state.memory, clients, context.round)
        self.index.learn(state.index, clients, values, stats, context.pool)
        self.memory.add(state.memory, clients, context.round, values)
        if isinstance(self.alpha, ParticipationTarget) and len(report.invited):  # once a round
            self.alpha.adapt(state.weight, context)

    def ucb(self, state: BsflState, context: RoundContext) -> FloatArray:
        """Return ucb(k, t-1) of the available clients (eq. update_ucb)."""
        clients, t = context.available, context.round - 1
        evidence = Evidence(
            clients=clients,
            invitations=pick(context.task.invitations, clients),
            stats=self.memory.recall(state.memory, clients, t),
            rounds=self.memory.rounds(t),
            n_invited=context.n_invited,
            tau_min=self._tau_min(state),
            worst_s=self._worst(state),
            pool=context.pool,
        )
        return self.index.speeds(state.index, evidence)

    def diagnostics(self, state: BsflState, context: RoundContext) -> dict[str, float]:
        """Return alpha."""
        return {"alpha": self.weight(state, context)}

    def weight(self, state: BsflState, context: RoundContext) -> float:
        """Return alpha, the setting or what was learned for a target."""
        if isinstance(self.alpha, ParticipationTarget):
            return self.alpha.weight(state.weight, context)
        return self.alpha

    def _tau_min(self, state: BsflState) -> float:
        tau_min = state.fastest_s if self.tau_min is None else self.tau_min
        if np.isfinite(tau_min):
            return tau_min
        return 1.0 if self.tau_max is None else self.tau_max  # only failures so far

    def _worst(self, state: BsflState) -> float:
        """Return the latency that stands for a response that never came, 0 if none is known."""
        return self.tau_max or state.slowest_s
