"""What each index makes of the same weights: round time against participation, and regret."""

import numpy as np
from matplotlib.figure import Figure

from bsfl.analysis.statistics import band
from bsfl.report.style import COLOURS, LINES, house_style
from bsfl.runs.results import Results
from bsfl.studies.ablations import late, left_out

MARKERS = "osD^vP*"


def radius_figure(found: dict[str, Results]) -> Figure:
    """Return one column per fleet: its fronts of (Gini, mean round), and regret over the rounds."""
    with house_style():
        figure = Figure(figsize=(4.2 * len(found), 7.6))
        panels = figure.subplots(2, len(found), squeeze=False)
        for (fronts, regrets), results in zip(panels.T, found.values(), strict=True):
            scenario = results.scenario
            assert scenario.objective
            played = scenario.rounds - left_out(scenario)
            shared = f"-{scenario.objective.alpha:g}"
            indices = list(dict.fromkeys(label.rpartition("-")[0] for label in scenario.policies))
            for i, index in enumerate(filter(None, indices)):
                look = {"color": COLOURS[i], "ls": LINES[i], "label": index}
                labels = [n for n in scenario.policies if n.startswith(f"{index}-")]
                ends = [
                    np.mean([late(records, scenario) for records in results.records(label)], axis=0)
                    for label in labels
                ]
                points = sorted((uneven, time_s / played) for time_s, uneven in ends)
                fronts.plot(*zip(*points, strict=True), marker=MARKERS[i], ms=4, **look)
                if index + shared in labels and index != "genie":
                    mean, half = band(results.cumulative(index + shared, "regret"))
                    t = np.arange(1, len(mean) + 1)
                    regrets.plot(t, mean, **look)
                    regrets.fill_between(
                        t, mean - half, mean + half, color=COLOURS[i], alpha=0.2, lw=0
                    )
            fronts.set(xlabel="Gini of selections", title=scenario.title.partition(":")[0])
            regrets.set(xlabel="round", xlim=(0, None), ylim=(0, None))
        panels[0, 0].set_ylabel("mean round after the exploration (s)")
        panels[1, 0].set_ylabel(f"regret, alpha = {shared[1:]}")
        panels[0, 0].legend(fontsize="small")
    return figure
