"""The advisor: which policy, invitations and deadline suit the clients in a log?"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.fleet.answer_log import Columns
from bsfl.monitor.words import seconds
from bsfl.policies import POLICIES, Pace
from bsfl.report import Findings
from bsfl.studies.advice import search
from bsfl.studies.advice.log import AnswerLog, read_log
from bsfl.studies.advice.search import RANDOM, Search
from bsfl.studies.advice.show import (
    brief_table,
    floor_section,
    floor_words,
    saving,
    sentence,
    sizes_table,
    trials_table,
)
from bsfl.studies.advice.trials import Setting, Trial, Worlds, recommended
from bsfl.studies.advice.warm_start import warm_start
from bsfl.studies.study import Effort

STATE = "warm-start.bsfl"
N_WORLDS = 5
FEW_ANSWERS, FEW_CHANCES = 3.0, 5.0
"""Answers of a client, and fair number of rounds, below which a prediction is doubtful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Which policy, invitations and deadline suit the clients in a log?

    Attributes:
        log: A CSV with a header, one row for every answer; or a journal of a Scheduler.
        cohort_size: Answers that a round wants. None: as in the journal, or a tenth of the clients.
        floor: The least part of its fair share that a client shall have.
        deadline_s: When answers are overdue. None: as the log shows.
        rounds: How many are simulated.
        policies: Who is compared. None: all that a log can judge.
        columns: Names of the columns of a CSV, where they cannot be guessed.
        ids: What the ids of a CSV are: "text", "int" or "auto".
    """

    log: Path
    cohort_size: int | None = None
    floor: float = 0.8
    deadline_s: float | None = None
    rounds: int = 500
    policies: tuple[str, ...] | None = None
    columns: Columns = field(default_factory=Columns)
    ids: str = "auto"

    def __post_init__(self) -> None:
        checks.between("floor", self.floor, 0.0, 1.0)
        checks.natural("rounds", self.rounds)
        if self.cohort_size is not None:
            checks.natural("cohort_size", self.cohort_size)
        for name in self.policies or ():
            POLICIES.settings(name)  # it says what is known
            if not search.can_judge(name):
                raise InvalidInput(
                    f"a log of times cannot judge {name}, which needs to be told more of clients"
                )

    def play(self, folder: Path, effort: Effort) -> Findings:
        log = read_log(self.log, deadline_s=self.deadline_s, columns=self.columns, ids=self.ids)
        plan = self.first_plan(log)
        effort.say(f"{self.log}: {log.words()}")
        found = Search(
            worlds=Worlds.of(log),
            digest=log.digest(),
            file=folder / "trials.jsonl",
            jobs=effort.jobs,
            steps=effort.steps,
            options=told_by(log, plan),
        )
        finals = self.finals(found, log, plan, effort.seeds or N_WORLDS)
        best = recommended(finals, self.floor)
        others = self.other_sizes(found, best.setting, log.n_clients)
        state = keep_state(log, best.setting, folder)
        return findings(self, log, finals, best, others, state)

    def first_plan(self, log: AnswerLog) -> Setting:
        """Return random selection with the log's cohort size and deadline."""
        n_clients = log.n_clients
        if n_clients < 2:
            raise InvalidInput(f"{self.log} has one client, so there is nothing to choose")
        tenth = min(max(round(n_clients / 10), 2), n_clients - 1)
        size = self.cohort_size or log.cohort_size or tenth
        if size >= n_clients:
            said = "" if self.cohort_size else " as the journal says; choose with --cohort-size"
            raise InvalidInput(
                f"cohort_size must be below the {n_clients:,} clients of the log, got {size:,}"
                + said
            )
        return Setting(policy=RANDOM, cohort_size=size, deadline_s=log.deadline_s)

    def finals(self, found: Search, log: AnswerLog, plan: Setting, n_worlds: int) -> list[Trial]:
        """Return the settings that are the best for some floor, and random selection with each.

        The first is random selection as most servers have it: nobody is invited in reserve.
        """
        usual = replace(plan, invite=search.FIRST_INVITE)
        settings = search.first_settings(usual, log.n_clients, self.floor, self.policies)
        trials = found.trials("policies", settings, rounds=max(self.rounds // 4, 1), n_worlds=1)
        kept = search.best_for_some_floor(trials, self.floor, 6)
        times = search.deadlines(log.latency_s[log.answered], log.deadline_s)
        settings = [v for trial in kept for v in search.varied(trial.setting, times)]
        rounds = max(self.rounds // 2, 1)
        trials = found.trials("invitations and deadlines", settings, rounds=rounds, n_worlds=1)
        kept = search.best_for_some_floor(trials, self.floor, 6)
        by_chance = [
            replace(plan, invite=one.setting.invite, deadline_s=one.setting.deadline_s)
            for one in kept
        ]
        settings = [plan, *by_chance, *(one.setting for one in kept)]
        return found.trials("the best few", settings, rounds=self.rounds, n_worlds=n_worlds)

    def other_sizes(self, found: Search, best: Setting, n_clients: int) -> list[Trial]:
        """Return the recommended setting and random selection, with half and twice the cohort."""
        size = best.cohort_size
        sizes = [m for m in (size // 2, size, 2 * size) if 1 <= m <= 0.8 * n_clients]
        settings = [replace(one, cohort_size=m) for m in sizes for one in (best, plain(best))]
        n_worlds, rounds = 2, max(self.rounds // 2, 1)
        return found.trials("cohort sizes", settings, rounds=rounds, n_worlds=n_worlds)


def plain(setting: Setting) -> Setting:
    """Return random selection with a setting's plan."""
    return replace(setting, policy=RANDOM, options={})


def told_by(log: AnswerLog, plan: Setting) -> dict[str, dict[str, Any]]:
    """Return what a log's losses tell: how even Pace is, which nobody can learn from times."""
    if not log.has_losses:
        return {}
    pace = Pace(tau_max=log.deadline_s)
    scheduler = warm_start(log, pace, cohort_size=plan.cohort_size)
    return {"pace": {"evenness": round(scheduler.figures()["evenness"], 2)}}


def keep_state(log: AnswerLog, setting: Setting, folder: Path) -> dict[str, Any]:
    """Write the warm start, unless the file has been used: then it is another one by now."""
    path, seal = folder / STATE, folder / ".warm-start.json"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        known = json.loads(seal.read_text()) if seal.exists() else {}
        if known.get("sha256") != hashlib.sha256(path.read_bytes()).hexdigest():
            return {"path": str(path), "is_kept": True}
        path.unlink()
    size, invite = setting.cohort_size, setting.invite
    warm_start(log, setting.made(), cohort_size=size, invite=invite).save(path)
    seal.write_text(json.dumps({"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}))
    return {"path": str(path), "is_kept": False}


def findings(
    advice: Advice,
    log: AnswerLog,
    finals: Sequence[Trial],
    best: Trial,
    others: Sequence[Trial],
    state: dict[str, Any],
) -> Findings:
    """Return what came out, in words, tables and numbers; the first trial is random selection."""
    by_plan = {one.setting.key: one for one in finals}
    alike = [by_plan[plain(one.setting).key] for one in finals]
    own = alike[finals.index(best)]
    section = floor_section(finals, advice.floor, alike)
    return Findings(
        title=f"What suits the {log.n_clients:,} clients of {advice.log.name}",
        verdict=[
            *saving(best, finals[0], own),
            f"Recommended: {sentence(best)}",
            *floor_words(best, advice.floor),
            *caveats(log, best, advice),
            kept_words(state),
        ],
        code=best.setting.code(),
        numbers={
            "floor": advice.floor,
            "n_clients": log.n_clients,
            "n_answers": int(np.count_nonzero(log.answered)),
            "read": log.words(),
            "deadline_s": log.deadline_s,
            "rounds": advice.rounds,
            "recommended": {
                **best.as_json(),
                "saved": best.saved(finals[0]).as_json(),
                "saved_with_the_same_plan": best.saved(own).as_json(),
                "paste": best.setting.code(),
            },
            "trials": [one.as_json() for one in finals],
            "recommended_by_floor": [
                finals.index(recommended(finals, floor / 100)) for floor in range(101)
            ],
            "other_cohort_sizes": [one.as_json() for one in others],
            "warm_start": state,
        },
        sections=[section],
        tables=[trials_table(finals, best, log.words()), sizes_table(others)],
        brief=[brief_table(finals, best), sizes_table(others)],
    )


def kept_words(state: dict[str, Any]) -> str:
    """Return where the warm start is."""
    if state["is_kept"]:
        return f"{state['path']} has been used since it was written, and was kept as it is."
    return f"What the log knows of each client: Scheduler.load({state['path']!r})"


def caveats(log: AnswerLog, best: Trial, advice: Advice) -> list[str]:
    """Return what to keep in mind."""
    silent, found = log.silent(), []
    if silent:
        found.append(
            f"{len(silent):,} of {log.n_clients:,} clients never answered within "
            f"{seconds(log.deadline_s)}. They count: they are invited, and waited for, as others."
        )
    each = np.count_nonzero(log.answered) / log.n_clients
    if each < FEW_ANSWERS:
        found.append(f"The log has {each:.1f} answers of a client, so predictions are rough.")
    chances = best.mean("chances")
    if chances < FEW_CHANCES:
        enough = math.ceil(2 * FEW_CHANCES * advice.rounds / chances)
        found.append(
            f"A fair share of {advice.rounds:,} rounds is {chances:.1f} of them, too few to tell "
            f"shares apart; with --rounds {enough} it is more certain."
        )
    return found
