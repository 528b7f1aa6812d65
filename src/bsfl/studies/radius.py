"""Narrower confidence widths and the lognormal index, compared with the genie."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from bsfl.estimators.fairness import gini, participation
from bsfl.experiments.metrics import Better
from bsfl.experiments.results import Records
from bsfl.experiments.scenario import Scenario
from bsfl.experiments.statistics import at_same_gini, interval
from bsfl.report.plots import Line, Panel, Plot, curve
from bsfl.studies.ablations import Ablation, Found, Row, mean

TURNS_LEFT_OUT = 3
"""How often every client is selected, on average, in the exploration phase."""


def left_out(scenario: Scenario) -> int:
    """Return the rounds of the exploration phase, 3 K / m."""
    return -(-TURNS_LEFT_OUT * scenario.clients.n_clients // scenario.cohort_size)


def late(records: Records, scenario: Scenario) -> tuple[float, float]:
    """Return virtual time and Gini of the rounds after the exploration phase."""
    rest = records[left_out(scenario) :]
    counts = participation(rest["kept"], scenario.clients.n_clients)
    return float(rest["duration_s"].sum()), gini(counts)


def measured_alpha(scenario: Scenario) -> str:
    """Return the end of the labels whose regret is measured with their own alpha."""
    assert scenario.objective
    return f"-{scenario.objective.alpha:g}"


class ConfidenceWidth(Ablation):
    """How far from the genie are narrower confidence widths and the lognormal index?"""

    scenarios = tuple(f"ablation-radius-{fleet}" for fleet in ("phones", "bimodal", "three-speeds"))

    better: ClassVar[Mapping[str, Better]] = {}  # fleets and weights differ

    def headline(self, rows: Sequence[Row]) -> str:
        over: dict[str, list[float]] = {}
        for row in rows:
            index = str(row["index"]).rpartition("-")[0]
            over.setdefault(index, []).append(mean(row, "time over genie at this Gini"))
        ratio = {index: sum(own) / len(own) for index, own in over.items()}
        best = min(ratio, key=lambda index: ratio[index])
        return (
            f"{best} is closest to the genie: {ratio[best]:.2f} times its time at the same Gini, "
            f"over all fleets and weights; with the paper's width, {ratio['paper']:.2f} times."
        )

    def rows(self, found: Found) -> list[Row]:
        """Compare every index with the genie at equal Gini, and its regret with the paper's."""
        rows: list[Row] = []
        for name, results in found.items():
            scenario, shared = results.scenario, measured_alpha(results.scenario)
            points = {
                label: [late(records, scenario) for records in results.records(label)]
                for label in scenario.policies
            }
            genies = [points.pop(label) for label in list(points) if label.startswith("genie")]
            fronts = list(zip(*genies, strict=True))
            paper = results.cumulative(f"paper{shared}", "regret")[:, -1]
            for label, own in points.items():
                pairs = zip(own, fronts, strict=True)
                ratio = [time_s / at_same_gini(front, uneven) for (time_s, uneven), front in pairs]
                taken = [records["duration_s"] for records in results.records(label)]
                regret = results.cumulative(label, "regret")[:, -1] / paper
                rows.append(
                    {
                        "fleet": name.removeprefix("ablation-radius-"),
                        "index": label,
                        "time over genie at this Gini": interval(ratio),
                        "gini": interval([uneven for _, uneven in own]),
                        "exploration (s)": interval([t[: left_out(scenario)].sum() for t in taken]),
                        "regret over the paper's": interval(regret) if shared in label else None,
                    }
                )
        return rows

    def plots(self, found: Found) -> list[Plot]:
        """Return one column per fleet: Pareto fronts of (Gini, mean round), and regret by round."""
        fronts, regrets = [], []
        for results in found.values():
            scenario, shared = results.scenario, measured_alpha(results.scenario)
            n_rounds = scenario.rounds - left_out(scenario)
            indices = dict.fromkeys(label.rpartition("-")[0] for label in scenario.policies)
            lines, curves = [], []
            for index in filter(None, indices):
                ends = [
                    np.mean([late(records, scenario) for records in results.records(label)], axis=0)
                    for label in scenario.policies
                    if label.startswith(f"{index}-")
                ]
                x, y = np.array(sorted((uneven, time_s / n_rounds) for time_s, uneven in ends)).T
                lines.append(Line(label=index, x=x, y=y, has_markers=True))
                if index != "genie" and index + shared in scenario.policies:
                    regret = results.cumulative(index + shared, "regret")
                    curves.append(curve(index, np.arange(1, regret.shape[1] + 1), regret))
            title, y_title = scenario.title.partition(":")[0], f"regret, alpha = {shared[1:]}"
            regrets.append(Panel(x="round", y=y_title, marks=curves, starts_at_0="xy"))
            y_title = "mean round after the exploration (s)"
            fronts.append(Panel(x="Gini of selections", y=y_title, title=title, marks=lines))
        caption = "Each index with the same weights: lower and further left is better."
        panels = [*fronts, *regrets]
        return [Plot(name="confidence-width", caption=caption, panels=panels, n_columns=len(found))]
