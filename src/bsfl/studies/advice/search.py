"""The search over settings: a coarse grid first, then the best few at full length.

    1  every policy, with over-selection 1.3 and the deadline of the log; short runs, one seed
    2  the best for some floor, with other invitations, deadlines and weights; longer runs, one seed
    3  the best of these for some floor; full length, all seeds

"The best for some floor" are the fastest settings whose minimum participation keeps that floor, for
floors from 0 to nearly 1. This is successive halving along the whole Pareto front, so that the user
can move the floor afterwards.
"""

import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import bsfl
from bsfl._core.registry import REQUIRED
from bsfl.errors import InvalidInput
from bsfl.experiments.parallel import unordered_results
from bsfl.policies import POLICIES, make_policy
from bsfl.studies.advice.trials import Numbers, ResampledFleets, Setting, Trial, run_setting
from bsfl.studies.study import Steps
from bsfl.types import FloatArray, OverSelection

MIN_PARTICIPATIONS = (0.0, 0.3, 0.5, 0.65, 0.8, 0.9)
"""Minimum participation of Pace and BSFL."""
WEIGHTS = (0.02, 0.1, 0.5, 2.0, 10.0)
"""Values of BSFL's alpha, in units of K/m."""
OVER_SELECTIONS: tuple[OverSelection, ...] = (1.0, 1.3, "auto")
FIRST_OVER_SELECTION = 1.3
DEADLINE_QUANTILES = (0.8, 0.95)
"""Quantiles of the latencies in the log that are tried as deadlines."""
FLOORS = (0.0, 0.25, 0.45, 0.6, 0.7, 0.78, 0.85, 0.92)
"""Floors for which the best settings are kept."""
SLACK = 0.05
"""By how much a setting may miss a floor in short runs."""
RANDOM = "random"

Call = tuple[Setting, int, int]
"""A setting, the number of rounds, and the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Runs settings on fleets resampled from a log, and reuses the results of earlier runs.

    Attributes:
        fleets: Fleets resampled from the log.
        digest: Checksum of the log.
        file: File with the finished runs, which another search on the same log resumes.
        jobs: Number of processes.
        steps: Shows progress.
        options: Options of policies that were estimated from the log, by policy.
        known: Results of the finished runs, by key.
    """

    fleets: ResampledFleets
    digest: str
    file: Path
    jobs: int
    steps: Steps
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    known: dict[str, Numbers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known.update(read_trials(self.file))

    def trials(
        self, title: str, settings: Iterable[Setting], *, rounds: int, n_seeds: int
    ) -> list[Trial]:
        """Return the results of settings with seeds from 0 on; finished runs are not repeated."""
        settings = list({self._key(one, 0, 0): one for one in settings}.values())
        calls = [(one, rounds, seed) for one in settings for seed in range(n_seeds)]
        missing = [call for call in calls if self._key(*call) not in self.known]
        with self.steps(title, len(calls)) as step, open_log(self.file) as write:
            for _ in range(len(calls) - len(missing)):
                step()
            options = [self.options.get(one.policy, {}) for one, _, _ in missing]
            work = [
                (self.fleets, *call, more, os.getpid())
                for call, more in zip(missing, options, strict=True)
            ]
            for i, numbers in unordered_results(run_one, work, jobs=self.jobs):
                key = self._key(*missing[i])
                self.known[key] = numbers
                write({"key": key, "numbers": numbers})
                step()
        return [
            Trial.of(one, rounds, [self.known[self._key(one, rounds, i)] for i in range(n_seeds)])
            for one in settings
        ]

    def _key(self, setting: Setting, rounds: int, seed: int) -> str:
        """Return the key of a run in the file, a hash of everything that it depends on."""
        more = self.options.get(setting.policy, {})
        content = [bsfl.__version__, self.digest, setting.as_json(), rounds, seed, more]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def run_one(
    fleets: ResampledFleets,
    setting: Setting,
    rounds: int,
    seed: int,
    more: dict[str, Any],
    parent: int,
) -> Numbers:
    """Run a setting with one seed; workers ignore Ctrl-C, because `parent` terminates them."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and os.getppid() == parent:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return run_setting(fleets.fleet(seed), setting, rounds, **more)


@contextmanager
def open_log(file: Path) -> Iterator[Callable[[Any], None]]:
    """Yield a function that appends a line of JSON; an incomplete last line is terminated first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as lines:
        if lines.tell() and file.read_bytes()[-1:] != b"\n":
            lines.write(b"\n")

        def write(content: Any) -> None:
            lines.write(json.dumps(content).encode() + b"\n")
            lines.flush()

        yield write


def read_trials(file: Path) -> dict[str, Numbers]:
    """Return the finished runs in a file by key; malformed lines are ignored."""
    known: dict[str, Numbers] = {}
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            entry = json.loads(line)
            known[str(entry["key"])] = {str(k): float(v) for k, v in entry["numbers"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
    return known


def first_settings(
    plan: Setting, n_clients: int, floor: float, policies: Sequence[str] | None = None
) -> list[Setting]:
    """Return random selection and every policy that a log can evaluate, all with one plan.

    Policies that need losses or sample sizes are left out, because a log of latencies does not show
    their benefit. So are policies with required settings other than a deadline.
    """
    floors = sorted({*MIN_PARTICIPATIONS, round(floor, 3)} - {1.0})
    tail = {"index": {"kind": "lognormal"}}
    per_client = n_clients / plan.cohort_size
    options: dict[str, list[dict[str, Any]]] = {
        "pace": [{"min_participation": share} if share else {} for share in floors],
        "bsfl": [
            *(
                {"alpha": {"kind": "min-participation", "share": x}, **tail}
                for x in floors
                if x > 0
            ),
            *({"alpha": round(weight * per_client, 3), **tail} for weight in WEIGHTS),
            *({"alpha": round(weight * per_client, 3)} for weight in WEIGHTS),
        ],
    }
    found = []
    for name in policies or [one for one in POLICIES if can_evaluate(one)]:
        tuning = getattr(POLICIES[name], "search_space", ())
        for candidate in options.get(name, [{}, *tuning]):
            setting = replace(plan, policy=name, options=candidate)
            try:
                setting.made()
            except InvalidInput:
                if policies:
                    raise
                continue
            found.append(setting)
    return found


def can_evaluate(name: str) -> bool:
    """Return whether a policy can be evaluated on a log of latencies."""
    policy = POLICIES[name]
    required = {k for k, v in POLICIES.settings(name).items() if v is REQUIRED} - {"tau_max"}
    if required or policy.is_oracle:
        return False
    return not make_policy(name, **policy.example).needs


def varied(setting: Setting, deadlines: Sequence[float]) -> Iterator[Setting]:
    """Yield a setting with other invitations and deadlines, and then with other weights."""
    for over_selection in OVER_SELECTIONS:
        for deadline_s in deadlines:
            yield replace(setting, over_selection=over_selection, deadline_s=deadline_s)
    alpha = setting.options.get("alpha")
    if isinstance(alpha, float):
        for factor in (0.5, 2.0):
            yield replace(setting, options={**setting.options, "alpha": round(factor * alpha, 3)})


def deadlines(latencies: FloatArray, deadline_s: float) -> list[float]:
    """Return the deadline of the log and shorter ones, rounded to two digits."""
    found = [float(f"{np.quantile(latencies, q):.2g}") for q in DEADLINE_QUANTILES]
    return [deadline_s, *(one for one in found if 0 < one < 0.9 * deadline_s)]


def best_for_some_floor(trials: Sequence[Trial], floor: float, n: int) -> list[Trial]:
    """Return the n fastest settings for the given floor, and the n / 3 fastest for other floors.

    Of settings with identical results only the first counts.
    """
    distinct = {(float(t.time_s.mean()), t.mean("min_participation")): t for t in reversed(trials)}
    trials = list(reversed(distinct.values()))
    kept: dict[int, Trial] = {}
    for one in (*FLOORS, floor):
        fair = [t for t in trials if t.keeps(one - SLACK)]
        fair.sort(key=lambda t: float(t.time_s.mean()))
        for trial in fair[: n if one == floor else max(n // 3, 1)]:
            kept[id(trial)] = trial
    if not kept:
        kept = {id(t): t for t in trials}
    return [t for t in trials if id(t) in kept]
