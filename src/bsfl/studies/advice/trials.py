"""The results of a setting, simulated on fleets that are resampled from a log."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from bsfl._core.task import TaskView
from bsfl.estimators.fairness import gini
from bsfl.experiments.statistics import Interval, interval, prediction_interval
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.policy import PolicyWrapper
from bsfl.random import stream
from bsfl.simulation.availability import Always, Availability, Independent, RecordedAvailability
from bsfl.simulation.clients import SimulatedClients
from bsfl.simulation.simulate import simulate
from bsfl.studies.advice.log import ResponseLog
from bsfl.studies.advice.resampled import ClientPosterior
from bsfl.types import (
    TIMEOUT,
    FloatArray,
    OverSelection,
    RoundContext,
    RoundPlan,
    RoundReport,
    State,
)

ALWAYS = 0.98
"""Availability from which on all clients count as always available."""
NEAR = 1.1
"""Ratio of times above which two settings count as different, for any number of seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A policy with its options, and the plan of a round.

    Attributes:
        policy: Name of the policy.
        options: Options of the policy as plain data, without the deadline.
        cohort_size: Target responses per round.
        over_selection: Invitations per target response.
        deadline_s: Seconds after which a round closes without the pending responses.
    """

    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cohort_size: int
    over_selection: OverSelection = 1.0
    deadline_s: float

    def made(self, **more: Any) -> Policy:
        """Return the policy."""
        settings = POLICIES.settings(self.policy)
        deadline = {"tau_max": self.deadline_s} if "tau_max" in settings else {}
        return make_policy(self.policy, **deadline, **{**self.options, **more})

    def plan(self) -> RoundPlan:
        size, over_selection = self.cohort_size, self.over_selection
        return RoundPlan(
            late="drop",
            target_responses=size,
            over_selection=over_selection,
            deadline_s=self.deadline_s,
        )

    def words(self) -> str:
        """Return the policy as code, without defaults."""
        return code_of(self.made())

    def short(self) -> str:
        """Return the policy as code, without defaults and deadline."""
        return code_of(self.made(), without=("tau_max",))

    def code(self) -> str:
        """Return lines of code that create the scheduler."""
        policy = self.made()
        parts = {type(getattr(policy, x.name)) for x in _changed(policy)}
        names = {x.__name__ for x in parts if x.__module__.startswith("bsfl")}
        imports = ", ".join(sorted({type(policy).__name__, *names, "Scheduler"}))
        size = f"cohort_size={self.cohort_size}"
        size += "" if self.over_selection == 1.0 else f", over_selection={self.over_selection!r}"
        return f"from bsfl import {imports}\n\nscheduler = Scheduler({self.words()}, {size})"

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @property
    def key(self) -> str:
        """The setting as a string, for comparison."""
        return json.dumps(self.as_json(), sort_keys=True)


def _changed(policy: Any) -> list[Any]:
    return [one for one in fields(policy) if getattr(policy, one.name) != one.default]


def code_of(value: Any, without: Sequence[str] = ()) -> str:
    """Return a value as code; a dataclass without its defaults.

    >>> from bsfl import BSFL, Lognormal
    >>> code_of(BSFL(alpha=3.0, index=Lognormal(quantile=0.8)))
    'BSFL(alpha=3.0, index=Lognormal(quantile=0.8))'
    """
    if not is_dataclass(value):
        return repr(value)
    given = ((x.name, getattr(value, x.name)) for x in _changed(value) if x.name not in without)
    words = ", ".join(f"{name}={code_of(argument)}" for name, argument in given)
    return f"{type(value).__name__}({words})"


class Counting(PolicyWrapper):
    """Wraps a policy and counts the participations of each client.

    A client participates when its response enters the model. A selection also counts when the
    client would not have responded with any setting. It does not count when the response comes
    after other clients have closed the round, or after a deadline shorter than that of the log.
    """

    def __init__(self, policy: Policy, fleet: SimulatedClients) -> None:
        super().__init__(policy)
        self.fleet = fleet
        self.served = np.zeros(fleet.n_clients, dtype=np.int64)
        self.task: TaskView | None = None
        self.n_kept = self.n_invited = 0

    def observe(self, state: State, context: RoundContext, report: RoundReport) -> None:
        kept = report.usable
        self.task = context.task
        self.n_kept += int(np.count_nonzero(kept))
        self.n_invited += len(report.invited)
        self.served[report.clients[kept]] += 1
        overdue = report.clients[report.outcome == TIMEOUT]
        if len(overdue):
            would = self.fleet.latencies(context.round, 0.0)[overdue] <= self.fleet.tau_max
            self.served[overdue[~would]] += 1
        super().observe(state, context, report)

    def fair_count(self) -> FloatArray:
        """Return the fair count of each client."""
        return np.zeros(len(self.served)) if self.task is None else self.task.fair_count

    def participation_ratios(self) -> FloatArray:
        """Return the participations of each client over its fair count."""
        fair = self.fair_count()
        could = fair > 0
        return np.asarray(self.served[could] / fair[could])


Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class ResampledFleets:
    """Fleets that are consistent with a log; each seed gives one of them."""

    posterior: ClientPosterior
    deadline_s: float
    fastest_s: float
    availability: Availability

    @classmethod
    def of(cls, log: ResponseLog) -> "ResampledFleets":
        availability: Availability = Always()
        if log.available is not None:
            state = log.available.astype(np.int8)
            availability = RecordedAvailability(state, np.arange(log.n_clients))
        elif log.availability < ALWAYS:
            availability = Independent(log.availability)
        fastest_s = float(log.latency_s[log.responded].min())
        return cls(log.posterior(), log.deadline_s, fastest_s, availability)

    def fleet(self, seed: int) -> SimulatedClients:
        return SimulatedClients(
            latency=self.posterior.sample(stream(seed, "resampled")),
            tau_min=self.fastest_s,
            tau_max=self.deadline_s,
            seed=seed,
            availability=self.availability,
        )


def run_setting(fleet: SimulatedClients, setting: Setting, rounds: int, **more: Any) -> Numbers:
    """Simulate a setting on a fleet and return its numbers; `more` are options of its policy."""
    counted, clock_s, n_rounds = Counting(setting.made(**more), fleet), 0.0, 0
    m, plan = setting.cohort_size, setting.plan()
    for record in simulate(
        counted, fleet, cohort_size=m, rounds=rounds, seed=fleet.seed, plan=plan
    ):
        clock_s, n_rounds = record.clock_s or 0.0, n_rounds + 1
    ratios = counted.participation_ratios()
    return {
        "mean_round_s": clock_s / n_rounds,
        "responses": counted.n_kept / n_rounds,
        "invited": counted.n_invited / n_rounds,
        "for_as_many_s": clock_s / max(counted.n_kept, 1e-9) * m,
        "min_participation": float(ratios.min(initial=math.inf)) if len(ratios) else 0.0,
        "gini": gini(counted.served),
        "fair_count": float(np.mean(counted.fair_count())),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """The results of a setting with several seeds.

    Attributes:
        setting: The setting.
        rounds: Number of rounds per run.
        numbers: Arrays with one value per seed, by name: mean_round_s; responses that entered the
            model and invited, both per round; for_as_many_s, the time for cohort_size responses;
            min_participation, the smallest participation ratio of a client, 1 is fair; gini;
            fair_count, the mean fair count of a client.
    """

    setting: Setting
    rounds: int
    numbers: Mapping[str, FloatArray]

    @classmethod
    def of(cls, setting: Setting, rounds: int, runs: Sequence[Numbers]) -> "Trial":
        return cls(setting, rounds, {k: np.array([run[k] for run in runs]) for k in runs[0]})

    def mean(self, name: str) -> float:
        return float(self.numbers[name].mean())

    def interval(self, name: str) -> Interval:
        return prediction_interval(self.numbers[name])

    @property
    def time_s(self) -> FloatArray:
        """Seconds for cohort_size responses, by seed; settings are compared by this number."""
        return self.numbers["for_as_many_s"]

    def saved(self, other: "Trial") -> Interval:
        """Return the saved fraction of another setting's time, paired by seed; at most 1."""
        n = min(len(self.time_s), len(other.time_s))
        found = prediction_interval(1.0 - self.time_s[:n] / other.time_s[:n])
        return replace(found, high=min(found.high, 1.0))

    def is_slower(self, other: "Trial") -> bool:
        """Return whether this setting is significantly slower than another."""
        n = min(len(self.time_s), len(other.time_s))
        ratio = interval(self.time_s[:n] / other.time_s[:n])
        return ratio.mean > NEAR or not ratio.low <= 1.0

    def keeps(self, floor: float) -> bool:
        """Return whether no client falls below a floor by more than one round."""
        return self.mean("min_participation") >= floor - 1.0 / max(self.mean("fair_count"), 1.0)

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        found = {name: self.interval(name).as_json() for name in self.numbers}
        return {"setting": self.setting.as_json(), "code": self.setting.words(), **found}


def recommended(trials: Sequence[Trial], floor: float) -> Trial:
    """Return the fastest setting that keeps the floor; of settings tied with it, the fairest.

    If no setting keeps the floor, return the one with the highest minimum participation.
    """
    fair = [one for one in trials if one.keeps(floor)]
    if not fair:
        return max(trials, key=lambda one: one.mean("min_participation"))
    fastest = min(fair, key=lambda one: float(one.time_s.mean()))
    tied = [one for one in fair if one is fastest or not one.is_slower(fastest)]
    return max(tied, key=lambda one: (one.mean("min_participation"), -one.mean("gini")))
