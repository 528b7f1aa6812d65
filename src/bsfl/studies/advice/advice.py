"""The advisor: which policy, invitations and deadline suit the clients in a log?"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.monitoring.words import seconds
from bsfl.policies import POLICIES, Pace
from bsfl.report import Report
from bsfl.simulation.response_log import Columns
from bsfl.studies.advice import search
from bsfl.studies.advice.log import ResponseLog, read_log
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
from bsfl.studies.advice.trials import ResampledFleets, Setting, Trial, recommended
from bsfl.studies.advice.warm_start import warm_start
from bsfl.studies.study import Effort

STATE = "warm-start.bsfl"
N_SEEDS = 5
FEW_RESPONSES, FEW_ROUNDS = 3.0, 5.0
"""Responses per client, and fair count per client, below which a prediction is unreliable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Which policy, invitations and deadline suit the clients in a log?

    Attributes:
        log: A CSV with a header and one row per response, or a journal of a Scheduler.
        cohort_size: Target responses per round; None: from the journal, or a tenth of the clients.
        min_participation: Minimum participation of every client, as a fraction of its fair count.
        deadline_s: Latency above which a response is late; None: from the log.
        rounds: Number of rounds to simulate.
        policies: Policies to compare; None: all that a log can evaluate.
        columns: Names of the columns of a CSV, if they cannot be guessed.
        ids: Type of the ids in a CSV: "text", "int" or "auto".
    """

    log: Path
    cohort_size: int | None = None
    min_participation: float = 0.8
    deadline_s: float | None = None
    rounds: int = 500
    policies: tuple[str, ...] | None = None
    columns: Columns = field(default_factory=Columns)
    ids: str = "auto"

    def __post_init__(self) -> None:
        validation.between("min_participation", self.min_participation, 0.0, 1.0)
        validation.natural("rounds", self.rounds)
        if self.cohort_size is not None:
            validation.natural("cohort_size", self.cohort_size)
        for name in self.policies or ():
            POLICIES.settings(name)  # its error lists the known policies
            if not search.can_evaluate(name):
                raise InvalidInput(
                    f"{name} cannot be evaluated on a log of latencies: it needs other information"
                )

    def play(self, folder: Path, effort: Effort) -> Report:
        log = read_log(self.log, deadline_s=self.deadline_s, columns=self.columns, ids=self.ids)
        plan = self.first_plan(log)
        effort.say(f"{self.log}: {log.words()}")
        found = Search(
            fleets=ResampledFleets.of(log),
            digest=log.digest(),
            file=folder / "trials.jsonl",
            jobs=effort.jobs,
            steps=effort.steps,
            options=options_from(log, plan),
        )
        finals = self.finals(found, log, plan, effort.seeds or N_SEEDS)
        best = recommended(finals, self.min_participation)
        others = self.other_sizes(found, best.setting, log.n_clients)
        state = save_warm_start(log, best.setting, folder)
        return report(self, log, finals, best, others, state)

    def first_plan(self, log: ResponseLog) -> Setting:
        """Return random selection with the log's cohort size and deadline."""
        n_clients = log.n_clients
        if n_clients < 2:
            raise InvalidInput(f"{self.log} has one client, so there is nothing to choose")
        tenth = min(max(round(n_clients / 10), 2), n_clients - 1)
        size = self.cohort_size or log.cohort_size or tenth
        if size >= n_clients:
            hint = "" if self.cohort_size else " from the journal; set it with --cohort-size"
            raise InvalidInput(
                f"cohort_size must be below the {n_clients:,} clients of the log, got {size:,}"
                + hint
            )
        return Setting(policy=RANDOM, cohort_size=size, deadline_s=log.deadline_s)

    def finals(self, found: Search, log: ResponseLog, plan: Setting, n_seeds: int) -> list[Trial]:
        """Return the settings that are the best for some floor, and random selection with each.

        The first is the baseline, random selection without over-selection.
        """
        usual = replace(plan, over_selection=search.FIRST_OVER_SELECTION)
        settings = search.first_settings(
            usual, log.n_clients, self.min_participation, self.policies
        )
        trials = found.trials("policies", settings, rounds=max(self.rounds // 4, 1), n_seeds=1)
        kept = search.best_for_some_floor(trials, self.min_participation, 6)
        times = search.deadlines(log.latency_s[log.responded], log.deadline_s)
        settings = [v for trial in kept for v in search.varied(trial.setting, times)]
        rounds = max(self.rounds // 2, 1)
        trials = found.trials("invitations and deadlines", settings, rounds=rounds, n_seeds=1)
        kept = search.best_for_some_floor(trials, self.min_participation, 6)
        by_chance = [
            replace(
                plan, over_selection=one.setting.over_selection, deadline_s=one.setting.deadline_s
            )
            for one in kept
        ]
        settings = [plan, *by_chance, *(one.setting for one in kept)]
        return found.trials("the best few", settings, rounds=self.rounds, n_seeds=n_seeds)

    def other_sizes(self, found: Search, best: Setting, n_clients: int) -> list[Trial]:
        """Return the recommended setting and random selection for several cohort sizes."""
        size = best.cohort_size
        sizes = [m for m in (size // 2, size, 2 * size) if 1 <= m <= 0.8 * n_clients]
        settings = [replace(one, cohort_size=m) for m in sizes for one in (best, plain(best))]
        n_seeds, rounds = 2, max(self.rounds // 2, 1)
        return found.trials("cohort sizes", settings, rounds=rounds, n_seeds=n_seeds)


def plain(setting: Setting) -> Setting:
    """Return random selection with the plan of a setting."""
    return replace(setting, policy=RANDOM, options={})


def options_from(log: ResponseLog, plan: Setting) -> dict[str, dict[str, Any]]:
    """Return the options of policies that are estimated from the losses in a log, by policy.

    This is the fairness exponent of Pace, which cannot be estimated from latencies.
    """
    if not log.has_losses:
        return {}
    pace = Pace(tau_max=log.deadline_s)
    scheduler = warm_start(log, pace, cohort_size=plan.cohort_size)
    return {"pace": {"fairness": round(scheduler.diagnostics()["fairness_exponent"], 2)}}


def save_warm_start(log: ResponseLog, setting: Setting, folder: Path) -> dict[str, Any]:
    """Write the warm start, unless a scheduler has been saved to the file since it was written."""
    path, checksum = folder / STATE, folder / ".warm-start.json"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        known = json.loads(checksum.read_text()) if checksum.exists() else {}
        if known.get("sha256") != hashlib.sha256(path.read_bytes()).hexdigest():
            return {"path": str(path), "is_kept": True}
        path.unlink()
    size, over_selection = setting.cohort_size, setting.over_selection
    warm_start(log, setting.made(), cohort_size=size, over_selection=over_selection).save(path)
    checksum.write_text(json.dumps({"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}))
    return {"path": str(path), "is_kept": False}


def report(
    advice: Advice,
    log: ResponseLog,
    finals: Sequence[Trial],
    best: Trial,
    others: Sequence[Trial],
    state: dict[str, Any],
) -> Report:
    """Return the report of the results; the first trial is the baseline, random selection."""
    by_plan = {one.setting.key: one for one in finals}
    same_plan = [by_plan[plain(one.setting).key] for one in finals]
    baseline = same_plan[finals.index(best)]
    section = floor_section(finals, advice.min_participation, same_plan)
    return Report(
        title=f"Recommendation for the {log.n_clients:,} clients in {advice.log.name}",
        headline=[
            *saving(best, finals[0], baseline),
            f"Recommended: {sentence(best)}",
            *floor_words(best, advice.min_participation),
            *caveats(log, best, advice),
            kept_words(state),
        ],
        code=best.setting.code(),
        numbers={
            "min_participation": advice.min_participation,
            "n_clients": log.n_clients,
            "n_responses": int(np.count_nonzero(log.responded)),
            "read": log.words(),
            "deadline_s": log.deadline_s,
            "rounds": advice.rounds,
            "recommended": {
                **best.as_json(),
                "saved": best.saved(finals[0]).as_json(),
                "saved_with_the_same_plan": best.saved(baseline).as_json(),
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
        terminal_tables=[brief_table(finals, best), sizes_table(others)],
    )


def kept_words(state: dict[str, Any]) -> str:
    """Return a sentence with the path of the warm start."""
    if state["is_kept"]:
        return f"{state['path']} has been used since it was written, and was not overwritten."
    return f"Warm start with the statistics of each client: Scheduler.load({state['path']!r})"


def caveats(log: ResponseLog, best: Trial, advice: Advice) -> list[str]:
    """Return the limitations of the prediction."""
    unresponsive, found = log.unresponsive(), []
    if unresponsive:
        found.append(
            f"{len(unresponsive):,} of {log.n_clients:,} clients never responded within "
            f"{seconds(log.deadline_s)}. The simulation invites them and waits for them, too."
        )
    per_client = np.count_nonzero(log.responded) / log.n_clients
    if per_client < FEW_RESPONSES:
        found.append(f"The log has {per_client:.1f} responses per client: predictions are rough.")
    fair_count = best.mean("fair_count")
    if fair_count < FEW_ROUNDS:
        rounds = math.ceil(2 * FEW_ROUNDS * advice.rounds / fair_count)
        found.append(
            f"The fair count of a client in {advice.rounds:,} rounds is {fair_count:.1f}, too low "
            f"to compare participation; --rounds {rounds} gives a more reliable result."
        )
    return found
