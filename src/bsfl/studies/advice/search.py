"""Which settings are played, in which order, and how much of it: a coarse grid, then the best few.

    1  every policy, invited 1.3 times, the log's deadline; few rounds in one world
    2  the best for some floor, with other invitations and deadlines, and others between them
    3  the best of all of these for some floor, at full length in all worlds

"The best for some floor" are the quickest of those whose least share keeps it, for floors from 0 to
near 1: successive halving along the whole front, so that the floor can be moved afterwards.
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
from bsfl.errors import InvalidInput
from bsfl.extras import as_they_come
from bsfl.over_selection import Invite
from bsfl.policies import POLICIES, make_policy
from bsfl.registry import REQUIRED
from bsfl.requirements import needs_of
from bsfl.studies.advice.trials import Numbers, Setting, Trial, Worlds, play
from bsfl.studies.study import Steps

LEAST_SHARES = (0.0, 0.3, 0.5, 0.65, 0.8, 0.9)
"""Shares that Pace and BSFL are asked to keep."""
WEIGHTS = (0.02, 0.1, 0.5, 2.0, 10.0)
"""Values of BSFL's alpha, in units of K/m."""
INVITES: tuple[Invite, ...] = (1.0, 1.3, "auto")
FIRST_INVITE = 1.3
SHORTER = (0.8, 0.95)
"""Deadlines beside the log's: the times in which such a part of all answers has come."""
FLOORS = (0.0, 0.25, 0.45, 0.6, 0.7, 0.78, 0.85, 0.92)
"""Floors for which the best are kept."""
SLACK = 0.05
"""By how much short runs may miss a floor."""
RANDOM = "random"

Call = tuple[Setting, int, int]
"""A setting, the rounds that it plays, and the number of the world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Plays settings on a log's worlds, and never the same twice.

    Attributes:
        worlds: Fleets resampled from the log.
        digest: Fingerprint of the log.
        file: Keeps what was played; another search on the same log goes on from there.
        jobs: Processes.
        steps: Shows progress.
        options: Options of policies that the log has told, by policy.
        known: What was played.
    """

    worlds: Worlds
    digest: str
    file: Path
    jobs: int
    steps: Steps
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    known: dict[str, Numbers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known.update(read_played(self.file))

    def trials(
        self, title: str, settings: Iterable[Setting], *, rounds: int, n_worlds: int
    ) -> list[Trial]:
        """Return what settings come to, in the worlds 0, 1, ...; what is known is not played."""
        settings = list({self._key(one, 0, 0): one for one in settings}.values())
        calls = [(one, rounds, world) for one in settings for world in range(n_worlds)]
        missing = [call for call in calls if self._key(*call) not in self.known]
        with self.steps(title, len(calls)) as step, open_log(self.file) as write:
            for _ in range(len(calls) - len(missing)):
                step()
            options = [self.options.get(one.policy, {}) for one, _, _ in missing]
            work = [
                (self.worlds, *call, more, os.getpid())
                for call, more in zip(missing, options, strict=True)
            ]
            for i, numbers in as_they_come(play_one, work, jobs=self.jobs):
                key = self._key(*missing[i])
                self.known[key] = numbers
                write({"key": key, "numbers": numbers})
                step()
        return [
            Trial.of(one, rounds, [self.known[self._key(one, rounds, w)] for w in range(n_worlds)])
            for one in settings
        ]

    def _key(self, setting: Setting, rounds: int, world: int) -> str:
        """Return what stands for a run in the file: all that it depends on."""
        more = self.options.get(setting.policy, {})
        content = [bsfl.__version__, self.digest, setting.as_json(), rounds, world, more]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def play_one(
    worlds: Worlds, setting: Setting, rounds: int, world: int, more: dict[str, Any], parent: int
) -> Numbers:
    """Play a setting in a world; Ctrl-C reaches all processes, and `parent` ends the others."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and os.getppid() == parent:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return play(worlds.fleet(world), setting, rounds, **more)


@contextmanager
def open_log(file: Path) -> Iterator[Callable[[Any], None]]:
    """Give a function that appends a line of JSON, at once; a torn last line is ended first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as lines:
        if lines.tell() and file.read_bytes()[-1:] != b"\n":
            lines.write(b"\n")

        def write(content: Any) -> None:
            lines.write(json.dumps(content).encode() + b"\n")
            lines.flush()

        yield write


def read_played(file: Path) -> dict[str, Numbers]:
    """Return what a file says was played; what is not as we write it is passed over."""
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
    """Return random selection and every policy that a log can judge, all with one plan.

    Policies that need losses or sample sizes are left out: a log of times does not tell what they
    gain by them. So is one that must be told more than a deadline.
    """
    floors = sorted({*LEAST_SHARES, round(floor, 3)} - {1.0})
    tail = {"index": {"kind": "lognormal"}}
    per_client = n_clients / plan.cohort_size
    options: dict[str, list[dict[str, Any]]] = {
        "pace": [{"least_share": share} if share else {} for share in floors],
        "bsfl": [
            *({"alpha": {"kind": "floor", "share": x}, **tail} for x in floors if x > 0),
            *({"alpha": round(weight * per_client, 3), **tail} for weight in WEIGHTS),
            *({"alpha": round(weight * per_client, 3)} for weight in WEIGHTS),
        ],
    }
    found = []
    for name in policies or [one for one in POLICIES if can_judge(one)]:
        tuning = getattr(POLICIES[name], "tuning", ())
        for own in options.get(name, [{}, *tuning]):
            setting = replace(plan, policy=name, options=own)
            try:
                setting.made()
            except InvalidInput:
                if policies:
                    raise
                continue
            found.append(setting)
    return found


def can_judge(name: str) -> bool:
    """Return whether a log of times is enough to tell how a policy does."""
    policy = POLICIES[name]
    required = {k for k, v in POLICIES.settings(name).items() if v is REQUIRED} - {"tau_max"}
    if required or getattr(policy, "knows_truth", False):
        return False
    return not needs_of(make_policy(name, **getattr(policy, "example", {})))


def varied(setting: Setting, deadlines: Sequence[float]) -> Iterator[Setting]:
    """Yield a setting with other invitations and deadlines, and its neighbours with its own."""
    for invite in INVITES:
        for deadline_s in deadlines:
            yield replace(setting, invite=invite, deadline_s=deadline_s)
    alpha = setting.options.get("alpha")
    if isinstance(alpha, float):
        for factor in (0.5, 2.0):
            yield replace(setting, options={**setting.options, "alpha": round(factor * alpha, 3)})


def deadlines(answers: np.ndarray[Any, np.dtype[np.float64]], deadline_s: float) -> list[float]:
    """Return the log's deadline and shorter ones, in two digits."""
    found = [float(f"{np.quantile(answers, part):.2g}") for part in SHORTER]
    return [deadline_s, *(one for one in found if 0 < one < 0.9 * deadline_s)]


def best_for_some_floor(trials: Sequence[Trial], floor: float, n: int) -> list[Trial]:
    """Return the n quickest for the floor that is asked for, and the n / 3 quickest for others.

    Of settings that did the very same only the first counts.
    """
    distinct = {(float(t.time_s.mean()), t.mean("least_share")): t for t in reversed(trials)}
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
