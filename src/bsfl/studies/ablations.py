"""What each option of BSFL buys, measured.

An ablation runs a few scenarios that train nothing and condenses them into rows of numbers, each
with its 95 % interval over seeds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from bsfl.analysis.metrics import selections
from bsfl.analysis.statistics import Interval, interval
from bsfl.analysis.tables import table_of
from bsfl.fairness import gini
from bsfl.records import FloatArray
from bsfl.report import Findings
from bsfl.report.plots import Plot
from bsfl.runs import Results
from bsfl.scenario import Scenario, find_scenario
from bsfl.studies.study import Effort

Row = dict[str, str | Interval | None]
Found = dict[str, Results]
"""Results by the name of their scenario."""


class Ablation:
    """A study of one option: subclasses say which scenarios are played and what is compared."""

    scenarios: ClassVar[Sequence[str]]

    def rows(self, found: Found) -> list[Row]:
        """Return what came out."""
        raise NotImplementedError

    def plots(self, found: Found) -> list[Plot]:
        """Return what is drawn of it."""
        return []

    def adapt(self, scenario: Scenario) -> Scenario:
        """Return what is played instead of one of the scenarios."""
        return scenario

    def run(self, folder: Path, effort: Effort) -> Found:
        """Run what is missing in the folder."""
        played = {name: self.adapt(find_scenario(name)) for name in self.scenarios}
        return {name: effort.run(one, folder / name) for name, one in played.items()}

    def play(self, folder: Path, effort: Effort) -> Findings:
        found = self.run(folder, effort)
        rows, about = self.rows(found), str(type(self).__doc__)
        plain = [
            {k: v.as_json() if isinstance(v, Interval) else v for k, v in row.items()}
            for row in rows
        ]
        return Findings(
            title=about,
            numbers={"about": about, "rows": plain},
            tables=[table_of(about, rows)],
            plots=self.plots(found),
        )


def mean_rounds(results: Results, label: str) -> FloatArray:
    """Return the mean virtual seconds of a round, seed by seed."""
    return np.array([r["duration_s"].mean() for r in results.records(label)])


class ColdStart(Ablation):
    """What does a model of strangers buy, when most clients are met once at most?"""

    scenarios = ("ablation-cold-start",)

    def rows(self, found: Found) -> list[Row]:
        """Compare mean round time and Gini with those of random selection."""
        (results,) = found.values()
        rows: list[Row] = []
        for label in results.scenario.policies:
            own = mean_rounds(results, label)
            rows.append(
                {
                    "policy": label,
                    "mean round (s)": interval(own),
                    "over random": interval(own / mean_rounds(results, "random")),
                    "Gini": interval([gini(counts) for counts in selections(results, label)]),
                }
            )
        return rows


class Jitter(ColdStart):
    """What does an index of the tail buy, when half of the clients are jittery?"""

    scenarios = ("ablation-jitter",)

    def rows(self, found: Found) -> list[Row]:
        """Compare with the mean-based index of the same alpha, too."""
        (results,) = found.values()
        rows = super().rows(found)
        for row in rows:
            label = str(row["policy"])
            alpha = label.partition("-")[2]
            row["over means"] = None
            if alpha:
                base = mean_rounds(results, f"means-{alpha}")
                row["over means"] = interval(mean_rounds(results, label) / base)
        return rows


class Drift(Ablation):
    """How much time do memories that fade lose, when a third of the fleet changes speed?"""

    scenarios = ("ablation-drift", "ablation-steady")

    def rows(self, found: Found) -> list[Row]:
        """Compare the time lost after a change with that of the policy that never forgets."""
        drift, steady = found["ablation-drift"], found["ablation-steady"]
        change, end = drift.scenario.fleet.drift, drift.scenario.rounds
        assert change
        half = change.at - 1

        def time_s(results: Results, label: str, first: int, last: int) -> FloatArray:
            return np.array([r["duration_s"][first:last].sum() for r in results.records(label)])

        def lost_s(label: str) -> FloatArray:
            return time_s(drift, label, half, end) - time_s(steady, label, half, end)

        rows: list[Row] = []
        for label in drift.scenario.policies:
            after = time_s(drift, label, half, end)
            afresh = time_s(steady, label, 0, end - half)
            rows.append(
                {
                    "policy": label,
                    "before (s)": interval(time_s(drift, label, 0, half)),
                    "after (s)": interval(after),
                    "lost by the change (s)": interval(lost_s(label)),
                    "lost, over stationary": interval(lost_s(label) / lost_s("stationary")),
                    "after, over starting afresh": interval(after / afresh),
                }
            )
        return rows
