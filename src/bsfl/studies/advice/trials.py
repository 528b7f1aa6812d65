"""What a setting comes to: played on fleets that are resampled from a log."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from bsfl.analysis.statistics import Interval, interval
from bsfl.fairness import gini
from bsfl.fleet import Fleet
from bsfl.fleet.availability import Always, Availability, Independent, RecordedAvailability
from bsfl.fleet.resampled import Believed
from bsfl.over_selection import Invite
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.randomness import stream
from bsfl.records import OK, TIMEOUT, FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.rounds import RoundPlan
from bsfl.simulation import simulate
from bsfl.state import State
from bsfl.studies.advice.log import AnswerLog

ALWAYS = 0.98
"""Part of the clients that is available from which on all of them count as such."""
NEAR = 1.1
"""Two settings that differ by more are told apart, however few worlds there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a user may choose.

    Attributes:
        policy: Name of the selection rule.
        options: Its settings, as plain data, without the deadline.
        cohort_size: How many answers a round wants.
        invite: How many times as many are invited.
        deadline_s: When a round closes without those who have not answered.
    """

    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cohort_size: int
    invite: Invite = 1.0
    deadline_s: float

    def made(self, **more: Any) -> Policy:
        """Return the policy."""
        own = POLICIES.settings(self.policy)
        deadline = {"tau_max": self.deadline_s} if "tau_max" in own else {}
        return make_policy(self.policy, **deadline, **{**self.options, **more})

    def plan(self) -> RoundPlan:
        size, invite = self.cohort_size, self.invite
        return RoundPlan(cohort_size=size, invite=invite, deadline_s=self.deadline_s)

    def words(self) -> str:
        """Return the policy as code; what is as it always is, is left out."""
        return code_of(self.made())

    def short(self) -> str:
        """Return the same without the deadline."""
        return code_of(self.made(), without=("tau_max",))

    def code(self) -> str:
        """Return lines to paste."""
        policy = self.made()
        parts = {type(getattr(policy, x.name)) for x in _changed(policy)}
        names = {x.__name__ for x in parts if x.__module__.startswith("bsfl")}
        imports = ", ".join(sorted({type(policy).__name__, *names, "Scheduler"}))
        size = f"cohort_size={self.cohort_size}"
        size += "" if self.invite == 1.0 else f", invite={self.invite!r}"
        return f"from bsfl import {imports}\n\nscheduler = Scheduler({self.words()}, {size})"

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @property
    def key(self) -> str:
        """The same as one text."""
        return json.dumps(self.as_json(), sort_keys=True)


def _changed(policy: Any) -> list[Any]:
    return [one for one in fields(policy) if getattr(policy, one.name) != one.default]


def code_of(value: Any, without: Sequence[str] = ()) -> str:
    """Return a value, or a record with what is not as it always is, as code.

    >>> from bsfl import BSFL, Lognormal
    >>> code_of(BSFL(alpha=3.0, index=Lognormal(quantile=0.8)))
    'BSFL(alpha=3.0, index=Lognormal(quantile=0.8))'
    """
    if not is_dataclass(value):
        return repr(value)
    told = ((x.name, getattr(value, x.name)) for x in _changed(value) if x.name not in without)
    words = ", ".join(f"{name}={code_of(own)}" for name, own in told)
    return f"{type(value).__name__}({words})"


class Watched:
    """A policy whose rounds are counted: who was served, and who could have been.

    A client is served when its answer entered the model, and when it was asked and would not have
    answered whatever the setting: that was its chance. It is not when its answer came too late for
    a round that others had ended, or for a deadline that is shorter than the log's.
    """

    def __init__(self, policy: Policy, fleet: Fleet) -> None:
        self.policy, self.fleet = policy, fleet
        self.served = np.zeros(fleet.n_clients, dtype=np.int64)
        self.opportunity: FloatArray = np.zeros(fleet.n_clients)
        self.n_kept = self.n_invited = 0

    def init(self, n_clients: int) -> State:
        return self.policy.init(n_clients)

    def select(self, state: State, context: RoundContext, rng: Rng) -> IntArray:
        if context.opportunity is not None:
            self.opportunity = context.opportunity  # the ledger's own, which goes on counting
        return self.policy.select(state, context, rng)

    def observe(self, state: State, context: RoundContext, report: Report) -> None:
        kept = report.outcome == OK
        self.n_kept += int(np.count_nonzero(kept))
        self.n_invited += len(report.chosen)
        self.served[report.clients[kept]] += 1
        overdue = report.clients[report.outcome == TIMEOUT]
        if len(overdue):
            would = self.fleet.latencies(context.t, 0.0)[overdue] <= self.fleet.tau_max
            self.served[overdue[~would]] += 1
        self.policy.observe(state, context, report)

    def shares(self) -> FloatArray:
        """Return how often each client was served over its fair number of rounds."""
        had = self.opportunity > 0
        return np.asarray(self.served[had] / self.opportunity[had])


Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Worlds:
    """Fleets that may have written a log; a world has a number."""

    believed: Believed
    deadline_s: float
    fastest_s: float
    availability: Availability

    @classmethod
    def of(cls, log: AnswerLog) -> "Worlds":
        availability: Availability = Always()
        if log.available is not None:
            state = log.available.astype(np.int8)
            availability = RecordedAvailability(state, np.arange(log.n_clients))
        elif log.availability < ALWAYS:
            availability = Independent(log.availability)
        fastest_s = float(log.latency_s[log.answered].min())
        return cls(log.believed(), log.deadline_s, fastest_s, availability)

    def fleet(self, world: int) -> Fleet:
        return Fleet(
            latency=self.believed.world(stream(world, "resampled")),
            tau_min=self.fastest_s,
            tau_max=self.deadline_s,
            seed=world,
            availability=self.availability,
        )


def play(fleet: Fleet, setting: Setting, rounds: int, **more: Any) -> Numbers:
    """Return what a setting comes to on a fleet; `more` are options of its policy."""
    watched, clock_s, played = Watched(setting.made(**more), fleet), 0.0, 0
    m, plan = setting.cohort_size, setting.plan()
    for record in simulate(
        watched, fleet, cohort_size=m, rounds=rounds, seed=fleet.seed, plan=plan
    ):
        clock_s, played = record.clock_s or 0.0, played + 1
    shares = watched.shares()
    return {
        "mean_round_s": clock_s / played,
        "answers": watched.n_kept / played,
        "invited": watched.n_invited / played,
        "for_as_many_s": clock_s / max(watched.n_kept, 1e-9) * m,
        "least_share": float(shares.min(initial=math.inf)) if len(shares) else 0.0,
        "gini": gini(watched.served),
        "chances": float(watched.opportunity.mean()),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """What a setting came to in some worlds, [world].

    Attributes:
        setting: What was played.
        rounds: For how long.
        numbers: By name: mean_round_s; answers that entered the model and invitations, of a round;
            for_as_many_s, the time for cohort_size answers; least_share, that of the least served
            client, 1 is fair; gini; chances, the fair number of rounds of a client.
    """

    setting: Setting
    rounds: int
    numbers: Mapping[str, FloatArray]

    @classmethod
    def of(cls, setting: Setting, rounds: int, worlds: Sequence[Numbers]) -> "Trial":
        return cls(setting, rounds, {k: np.array([one[k] for one in worlds]) for k in worlds[0]})

    def mean(self, name: str) -> float:
        return float(self.numbers[name].mean())

    def interval(self, name: str) -> Interval:
        return foreseen(self.numbers[name])

    @property
    def time_s(self) -> FloatArray:
        """Seconds for cohort_size answers in every world: what settings are compared by."""
        return self.numbers["for_as_many_s"]

    def saved(self, other: "Trial") -> Interval:
        """Return which part of another setting's time is saved, world by world: at most all."""
        n = min(len(self.time_s), len(other.time_s))
        found = foreseen(1.0 - self.time_s[:n] / other.time_s[:n])
        return replace(found, high=min(found.high, 1.0))

    def is_slower(self, other: "Trial") -> bool:
        """Return whether this is slower than another setting by more than chance."""
        n = min(len(self.time_s), len(other.time_s))
        ratio = interval(self.time_s[:n] / other.time_s[:n])
        return ratio.mean > NEAR or not ratio.low <= 1.0

    def keeps(self, floor: float) -> bool:
        """Return whether nobody falls below a floor; a share is counted in whole rounds."""
        return self.mean("least_share") >= floor - 1.0 / max(self.mean("chances"), 1.0)

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers."""
        found = {name: self.interval(name).as_json() for name in self.numbers}
        return {"setting": self.setting.as_json(), "code": self.setting.words(), **found}


def foreseen(values: FloatArray) -> Interval:
    """Return the mean over worlds, and where 95 % of worlds are: that of the log is one more.

    The interval of a mean is sqrt(n + 1) times as narrow.

    >>> foreseen(np.array([1.0, 2.0, 3.0])).high
    6.968...
    """
    mean = interval(values)
    half = (mean.high - mean.mean) * math.sqrt(len(values) + 1)
    return Interval(mean.mean, mean.mean - half, mean.mean + half)


def recommended(trials: Sequence[Trial], floor: float) -> Trial:
    """Return the quickest setting that keeps the floor; the fairest of those as quick.

    Where none keeps it, the one with the highest least share.
    """
    fair = [one for one in trials if one.keeps(floor)]
    if not fair:
        return max(trials, key=lambda one: one.mean("least_share"))
    quickest = min(fair, key=lambda one: float(one.time_s.mean()))
    alike = [one for one in fair if one is quickest or not one.is_slower(quickest)]
    return max(alike, key=lambda one: (one.mean("least_share"), -one.mean("gini")))
