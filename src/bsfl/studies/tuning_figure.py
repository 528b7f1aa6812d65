"""What each weight costs on a user's own fleet: round time against participation."""

from matplotlib.figure import Figure

from bsfl.report.style import COLOURS, LINES, house_style
from bsfl.studies.tuning import Trial


def tuning_figure(trials: list[Trial], chosen: Trial, floor: float) -> Figure:
    """Return mean round time against the least share and against Gini, for every index."""
    with house_style():
        figure = Figure(figsize=(11, 4.2))
        panels = figure.subplots(1, 2, sharey=True)
        for axes, name in zip(panels, ("least_share", "gini"), strict=True):
            indices = list(dict.fromkeys(trial.index for trial in trials))
            for i, index in enumerate(indices):
                points = sorted(
                    (getattr(t, name), t.mean_round_s.mean) for t in trials if t.index == index
                )
                axes.plot(
                    *zip(*points, strict=True),
                    color=COLOURS[i],
                    ls=LINES[i],
                    marker="s" if index == "random" else "o",
                    ms=4,
                    label=index if index == "random" else f"BSFL, {index}",
                )
            axes.plot(
                getattr(chosen, name),
                chosen.mean_round_s.mean,
                marker="*",
                ms=16,
                ls="",
                color="black",
                label="recommended",
            )
            axes.set_ylim(bottom=0)
        panels[0].axvline(floor, color="0.6", lw=1)
        panels[0].set(
            xlabel="share of the least chosen client (1 is fair)",
            ylabel="mean round (s)",
            title="Nobody left behind",
        )
        panels[1].set(xlabel="Gini of selections (0 is even)", title="Evenness over all")
        panels[0].legend(loc="upper left", fontsize="small")
    return figure
