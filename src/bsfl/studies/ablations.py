"""What each option of BSFL buys, measured.

An ablation runs a few scenarios that train nothing and condenses them into rows of numbers, each
with its 95 % interval over seeds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from bsfl.analysis.metrics import fair_selections, selections
from bsfl.analysis.statistics import Interval, interval
from bsfl.analysis.tables import table_of
from bsfl.fairness import gini, participation
from bsfl.frame import Better
from bsfl.records import FloatArray
from bsfl.report import Findings
from bsfl.report.plots import Plot
from bsfl.runs import Results, took_part
from bsfl.scenario import Scenario, find_scenario
from bsfl.studies.study import Effort, changed

FLOOR, FLOOR_PART, FLOOR_ROUNDS = 0.8, 5, 1000
"""The floor that is asked for; from which part of the run on it must hold; and for how long."""
FLOOR_SEED = 100
"""Seed of the first world: the controller was adjusted on others."""
FLOOR_FLEETS = (
    *("phones-iid", "phones-quantity", "authors-bimodal", "authors-three-speeds"),
    *("drift", "flaky", "availability-8pct"),
)

Row = dict[str, str | Interval | None]
Found = dict[str, Results]
"""Results by the name of their scenario."""


class Ablation:
    """A study of one option: subclasses say which scenarios are played and what is compared."""

    scenarios: ClassVar[Sequence[str]]
    better: ClassVar[Mapping[str, Better]]

    def verdict(self, rows: Sequence[Row]) -> str:
        """Return the answer in a sentence."""
        raise NotImplementedError

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
            verdict=[self.verdict(rows)],
            numbers={"about": about, "rows": plain},
            tables=[table_of(about, rows, self.better)],
            plots=self.plots(found),
        )


def cell(row: Row, column: str) -> Interval:
    """Return a number of a row."""
    found = row[column]
    assert isinstance(found, Interval)
    return found


def mean(row: Row, column: str) -> float:
    """Return the mean of a number of a row."""
    return cell(row, column).mean


def mean_rounds(results: Results, label: str) -> FloatArray:
    """Return the mean virtual seconds of a round, world by world."""
    return np.array([r["duration_s"].mean() for r in results.records(label)])


class ColdStart(Ablation):
    """What does a model of strangers buy, when most clients are met once at most?"""

    scenarios = ("ablation-cold-start",)
    better = dict.fromkeys(("mean round (s)", "over random", "over means", "Gini"), "less")

    def verdict(self, rows: Sequence[Row]) -> str:
        best = min(rows, key=lambda row: mean(row, "mean round (s)"))
        took, part = cell(best, "mean round (s)"), cell(best, "over random")
        return (
            f"{best['policy']} has the shortest rounds: {took.text()} s, {part.text('.2f')} times "
            f"those of random selection, at a Gini of {mean(best, 'Gini'):.2f}."
        )

    def rows(self, found: Found) -> list[Row]:
        """Compare mean round time and Gini with those of random selection."""
        (results,) = found.values()
        by_chance = mean_rounds(results, "random")
        return [
            {
                "policy": label,
                "mean round (s)": interval(mean_rounds(results, label)),
                "over random": interval(mean_rounds(results, label) / by_chance),
                "Gini": interval([gini(counts) for counts in selections(results, label)]),
            }
            for label in results.scenario.policies
        ]


class Jitter(ColdStart):
    """What does an index of the tail buy, when half of the clients are jittery?"""

    scenarios = ("ablation-jitter",)

    def rows(self, found: Found) -> list[Row]:
        """Compare with the mean-based index of the same alpha, too."""
        (results,) = found.values()
        rows = super().rows(found)
        for row in rows:
            label = str(row["policy"])
            alpha, row["over means"] = label.partition("-")[2], None
            if alpha:
                means = mean_rounds(results, f"means-{alpha}")
                row["over means"] = interval(mean_rounds(results, label) / means)
        return rows


class Drift(Ablation):
    """How much time do memories that fade lose, when a third of the fleet changes speed?"""

    scenarios = ("ablation-drift", "ablation-steady")
    better = dict.fromkeys(("before (s)", "after (s)"), "less")  # random selection loses nothing

    def verdict(self, rows: Sequence[Row]) -> str:
        by_name = {str(row["policy"]): row for row in rows}
        best = min(rows, key=lambda row: mean(row, "after (s)"))
        after, kept = (cell(row, "after (s)").text() for row in (best, by_name["stationary"]))
        return (
            f"{best['policy']} is quickest after the change: {after} s, where {kept} s "
            "go by if nothing is forgotten."
        )

    def rows(self, found: Found) -> list[Row]:
        """Compare the time lost after a change with that of the policy that never forgets."""
        drift, steady = found["ablation-drift"], found["ablation-steady"]
        change = drift.scenario.fleet.drift
        assert change
        half = change.at - 1
        before, after, afresh = slice(half), slice(half, None), slice(drift.scenario.rounds - half)

        def time_s(results: Results, label: str, rounds: slice) -> FloatArray:
            return np.array([r["duration_s"][rounds].sum() for r in results.records(label)])

        def lost_s(label: str) -> FloatArray:
            return time_s(drift, label, after) - time_s(steady, label, after)

        return [
            {
                "policy": label,
                "before (s)": interval(time_s(drift, label, before)),
                "after (s)": interval(time_s(drift, label, after)),
                "lost by the change (s)": interval(lost_s(label)),
                "lost, over stationary": interval(lost_s(label) / lost_s("stationary")),
                "after, over starting afresh": interval(
                    time_s(drift, label, after) / time_s(steady, label, afresh)
                ),
            }
            for label in drift.scenario.policies
        ]


def least_shares(results: Results, label: str) -> FloatArray:
    """Return the smallest part of its share that a client had at any time, world by world."""
    rate = fair_selections(results, label) / results.scenario.rounds
    least = []
    for records, fair in zip(results.records(label), rate, strict=True):
        chosen = [participation(cohort, len(fair)) for cohort in took_part(records)]
        share = np.cumsum(chosen, axis=0) / np.outer(records["t"], fair)
        least.append(share[len(records) // FLOOR_PART :].min())
    return np.array(least)


class FloorHeld(Ablation):
    """Does every client get 80 % of its share, in every fleet of the arena?"""

    scenarios = FLOOR_FLEETS
    better: ClassVar[Mapping[str, Better]] = {}  # fleets differ

    def verdict(self, rows: Sequence[Row]) -> str:
        least = {
            str(one["policy"]): min(
                mean(row, "least share") for row in rows if row["policy"] == one["policy"]
            )
            for one in rows
        }
        by_chance = least.pop("random")
        best = max(least, key=lambda policy: least[policy])
        return (
            f"With {best} the least served client has {least[best]:.2f} of its share or more in "
            f"every fleet, with random selection {by_chance:.2f}, on average over worlds."
        )

    def adapt(self, scenario: Scenario) -> Scenario:
        """Return the fleet of an arena's scenario with policies that are asked for a floor."""
        fleet = dict(scenario.source["fleet"])
        if scenario.learning:  # clients take as long as if they trained
            held = scenario.learning.data(scenario.fleet.n_clients, seed=FLOOR_SEED).samples
            spread = float(np.log(held).std()) if held.std() > 1 else 0.0
            fleet["data"] = {"mean_samples": float(held.mean()), "size_sigma": spread}
        if "drift" in fleet:
            fleet["drift"] = {**fleet["drift"], "at": FLOOR_ROUNDS // 2 + 1}
        asked = {"policy": "bsfl", "alpha": {"kind": "floor", "share": FLOOR}}
        policies = {
            "floor-paper": asked,
            "floor-bernstein": {**asked, "index": {"kind": "means", "radius": "bernstein"}},
            "floor-lognormal": {**asked, "index": {"kind": "lognormal"}},
            "random": {},
        }
        length = {"learning": None, "time_s": None, "rounds": FLOOR_ROUNDS}
        return changed(scenario, fleet=fleet, first_seed=FLOOR_SEED, policies=policies, **length)

    def rows(self, found: Found) -> list[Row]:
        """Return the least share that any client ever had after the first part of the run."""
        return [
            {
                "fleet": name,
                "policy": label,
                "least share": interval(least_shares(results, label)),
                "mean round over random": interval(
                    mean_rounds(results, label) / mean_rounds(results, "random")
                ),
            }
            for name, results in found.items()
            for label in results.scenario.policies
        ]
