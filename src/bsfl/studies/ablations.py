"""Ablations: the effect of each option of BSFL.

An ablation runs a few scenarios without training and summarises them in rows of numbers, each with
its 95 % interval over seeds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from bsfl.estimators.fairness import gini, participation
from bsfl.experiments.metrics import Better, fair_counts, participations
from bsfl.experiments.reading import read_scenario
from bsfl.experiments.results import Results
from bsfl.experiments.scenario import Scenario
from bsfl.experiments.statistics import Interval, interval
from bsfl.report import Report
from bsfl.report.plots import Plot
from bsfl.studies.study import Effort, table_of
from bsfl.types import FloatArray

FLOOR, FLOOR_PART, FLOOR_ROUNDS = 0.8, 5, 1000
"""Required participation ratio; the first 1 / FLOOR_PART of a run does not count; its rounds."""
FLOOR_SEED = 100
"""First seed; the controller was tuned with others."""
FLOOR_FLEETS = (
    *("phones-iid", "phones-quantity", "authors-bimodal", "authors-three-speeds"),
    *("drift", "flaky", "availability-8pct"),
)

Row = dict[str, str | Interval | None]
Found = dict[str, Results]
"""Results by name of the scenario."""


class Ablation:
    """A study of one option: subclasses define which scenarios run and what is compared."""

    scenarios: ClassVar[Sequence[str]]
    better: ClassVar[Mapping[str, Better]]

    def headline(self, rows: Sequence[Row]) -> str:
        """Return the conclusion in one sentence."""
        raise NotImplementedError

    def rows(self, found: Found) -> list[Row]:
        """Return the rows of the table."""
        raise NotImplementedError

    def plots(self, found: Found) -> list[Plot]:
        """Return the figures."""
        return []

    def adapt(self, scenario: Scenario) -> Scenario:
        """Return the scenario to run, changed from one of `scenarios`."""
        return scenario

    def run(self, folder: Path, effort: Effort) -> Found:
        """Complete the runs in the folder and return the results."""
        adapted = {name: self.adapt(read_scenario(name)) for name in self.scenarios}
        return {name: effort.run(one, folder / name) for name, one in adapted.items()}

    def play(self, folder: Path, effort: Effort) -> Report:
        found = self.run(folder, effort)
        rows, about = self.rows(found), str(type(self).__doc__)
        plain = [
            {k: v.as_json() if isinstance(v, Interval) else v for k, v in row.items()}
            for row in rows
        ]
        return Report(
            title=about,
            headline=[self.headline(rows)],
            numbers={"about": about, "rows": plain},
            tables=[table_of(about, rows, self.better)],
            plots=self.plots(found),
        )


def cell(row: Row, column: str) -> Interval:
    """Return an interval of a row."""
    found = row[column]
    assert isinstance(found, Interval)
    return found


def mean(row: Row, column: str) -> float:
    """Return the mean of an interval of a row."""
    return cell(row, column).mean


def mean_rounds(results: Results, label: str) -> FloatArray:
    """Return the mean virtual seconds per round, by seed."""
    return np.array([r["duration_s"].mean() for r in results.records(label)])


class ColdStart(Ablation):
    """How much does a model of unseen clients help, when most clients are selected once at most?"""

    scenarios = ("ablation-cold-start",)
    better = dict.fromkeys(("over random", "over means"), "less")

    def headline(self, rows: Sequence[Row]) -> str:
        best = min(rows, key=lambda row: mean(row, "mean_round_s"))
        round_s, ratio = cell(best, "mean_round_s"), cell(best, "over random")
        return (
            f"{best['policy']} has the shortest rounds: {round_s.text()} s, {ratio.text('.2f')} "
            f"times those of random selection, at a Gini of {mean(best, 'gini'):.2f}."
        )

    def rows(self, found: Found) -> list[Row]:
        """Compare mean round time and Gini with those of random selection."""
        (results,) = found.values()
        by_chance = mean_rounds(results, "random")
        return [
            {
                "policy": label,
                "mean_round_s": interval(mean_rounds(results, label)),
                "over random": interval(mean_rounds(results, label) / by_chance),
                "gini": interval([gini(counts) for counts in participations(results, label)]),
            }
            for label in results.scenario.policies
        ]


class Jitter(ColdStart):
    """How much does an index of tail latencies help, when half of the clients are jittery?"""

    scenarios = ("ablation-jitter",)

    def rows(self, found: Found) -> list[Row]:
        """Compare also with the mean-based index of the same alpha."""
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
    """How much time do forgetting estimators lose, when a third of the clients change speed?"""

    scenarios = ("ablation-drift", "ablation-steady")
    better = dict.fromkeys(("before (s)", "after (s)"), "less")  # random selection loses nothing

    def headline(self, rows: Sequence[Row]) -> str:
        by_name = {str(row["policy"]): row for row in rows}
        best = min(rows, key=lambda row: mean(row, "after (s)"))
        after, base = (cell(row, "after (s)").text() for row in (best, by_name["stationary"]))
        return (
            f"{best['policy']} is fastest after the change: {after} s, compared with {base} s "
            "without forgetting."
        )

    def rows(self, found: Found) -> list[Row]:
        """Compare the time lost after a change with that of the stationary policy."""
        drift, steady = found["ablation-drift"], found["ablation-steady"]
        change = drift.scenario.clients.drift
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


def min_participations(results: Results, label: str) -> FloatArray:
    """Return the smallest participation ratio of any client at any time, by seed."""
    rate = fair_counts(results, label) / results.scenario.rounds
    smallest = []
    for records, fair in zip(results.records(label), rate, strict=True):
        counts = [participation(cohort, len(fair)) for cohort in records["kept"]]
        ratio = np.cumsum(counts, axis=0)[:, fair > 0] / np.outer(records["round"], fair[fair > 0])
        smallest.append(ratio[len(records) // FLOOR_PART :].min())
    return np.array(smallest)


class FloorHeld(Ablation):
    """Is every participation ratio at least 0.8, in every fleet of the benchmark suite?"""

    scenarios = FLOOR_FLEETS
    better: ClassVar[Mapping[str, Better]] = {}  # fleets differ

    def headline(self, rows: Sequence[Row]) -> str:
        smallest = {
            str(one["policy"]): min(
                mean(row, "min participation ratio")
                for row in rows
                if row["policy"] == one["policy"]
            )
            for one in rows
        }
        by_chance = smallest.pop("random")
        best = max(smallest, key=lambda policy: smallest[policy])
        return (
            f"With {best} the minimum participation is {smallest[best]:.2f} or more in every "
            f"fleet, with random selection {by_chance:.2f}, on average over seeds."
        )

    def adapt(self, scenario: Scenario) -> Scenario:
        """Return a scenario without training, with policies that keep the floor."""
        clients = scenario.clients
        if scenario.learning:  # the latencies are those of training
            sizes = scenario.learning.client_data(clients.n_clients, seed=FLOOR_SEED).samples
            spread = float(np.log(sizes).std()) if sizes.std() > 1 else 0.0
            data = {"mean_samples": float(sizes.mean()), "size_sigma": spread}
            clients = clients.changed(data=data)
        if clients.drift:
            clients = clients.changed(drift=clients.drift.changed(at=FLOOR_ROUNDS // 2 + 1))
        floor = {"policy": "bsfl", "alpha": {"kind": "min-participation", "share": FLOOR}}
        policies = {
            "floor-paper": floor,
            "floor-bernstein": {**floor, "index": {"kind": "ucb", "confidence_width": "bernstein"}},
            "floor-lognormal": {**floor, "index": {"kind": "lognormal"}},
            "random": {},
        }
        length = {"learning": None, "time_s": None, "rounds": FLOOR_ROUNDS}
        return scenario.changed(clients=clients, first_seed=FLOOR_SEED, policies=policies, **length)

    def rows(self, found: Found) -> list[Row]:
        """Return the minimum participation after the first part of the run."""
        return [
            {
                "fleet": name,
                "policy": label,
                "min participation ratio": interval(min_participations(results, label)),
                "mean round over random": interval(
                    mean_rounds(results, label) / mean_rounds(results, "random")
                ),
            }
            for name, results in found.items()
            for label in results.scenario.policies
        ]
