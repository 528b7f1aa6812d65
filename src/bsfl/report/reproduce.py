"""The paper's figures, each from one name."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.experiments import annealing_study as study
from bsfl.experiments.runner import run_scenario
from bsfl.experiments.scenario import find_scenario
from bsfl.report import write_report, write_summary
from bsfl.report.paper_figures import annealing_figure, generalization_figure, graph_figure
from bsfl.report.style import save

QUICK_ROUNDS, QUICK_SEEDS = 10, 3
"""A quick reproduction plays a tenth of the rounds with three seeds."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """One figure of the paper.

    Attributes:
        about: What it shows, in one line.
        make: Writes figures and summary.json into a folder; (folder, quick, jobs) -> summary.
    """

    about: str
    make: Callable[[Path, bool, int], dict[str, Any]]


def reproduce(name: str, folder: Path, *, quick: bool = False, jobs: int = -1) -> dict[str, Any]:
    """Make one of the paper's figures and return its summary."""
    if name not in REPRODUCTIONS:
        raise InvalidInput(f"unknown figure {name!r}; known are {', '.join(REPRODUCTIONS)}")
    return REPRODUCTIONS[name].make(folder, quick, jobs)


def _scenario(name: str) -> Callable[[Path, bool, int], dict[str, Any]]:
    def make(folder: Path, quick: bool, jobs: int) -> dict[str, Any]:
        scenario = find_scenario(name)
        if quick:
            rounds, seeds = scenario.rounds // QUICK_ROUNDS, QUICK_SEEDS
            source = scenario.source | {"rounds": rounds, "seeds": seeds}
            scenario = replace(scenario, rounds=rounds, seeds=seeds, source=source)
        return write_report(run_scenario(scenario, folder, jobs=jobs))

    return make


def _annealing(folder: Path, quick: bool, jobs: int) -> dict[str, Any]:
    steps, runs, instances = (2000, 5, 200) if quick else (5000, 20, 2000)
    problem = study.draw_problem(0, n_clients=500, m=25)
    paths, optimum = study.energy_paths(problem, steps=steps, runs=runs, jobs=jobs)
    games = study.tournament(instances=instances, steps=1000, jobs=jobs)
    title = f"25 of 500 clients, mean of {runs} runs with 95 % bands"
    save(annealing_figure(paths, optimum, games, title), folder, "annealing")
    summary = {
        "paper_win_rate_alsa_over_sa": study.PAPER_WIN_RATE,
        "tournament": games,
        "one_problem": {
            "n_clients": 500,
            "cohort_size": 25,
            "steps": steps,
            "optimum": optimum,
            "mean_energy_at_the_end": {p: float(np.mean(e[:, -1])) for p, e in paths.items()},
            "mean_best_energy": {p: float(np.mean(e.max(axis=1))) for p, e in paths.items()},
        },
    }
    write_summary(folder, summary)
    return summary


def _annealing_graph(folder: Path, quick: bool, jobs: int) -> dict[str, Any]:
    problem = study.draw_problem(3, n_clients=8, m=4)
    graphs = {name: study.neighbour_graph(problem, name) for name in ("swap", "symmetric")}
    save(graph_figure(graphs["swap"], graphs["symmetric"]), folder, "annealing-graph")
    summary = {
        "states": len(graphs["swap"].cohorts),
        "edges": {name: len(graph.edges) for name, graph in graphs.items()},
    }
    write_summary(folder, summary)
    return summary


def _generalization(folder: Path, quick: bool, jobs: int) -> dict[str, Any]:
    save(generalization_figure(), folder, "generalization")
    summary = {"target_rate": 0.25, "betas": [1, 2, 3, 5]}
    write_summary(folder, summary)
    return summary


REPRODUCTIONS: dict[str, Reproduction] = {
    "regret-iid": Reproduction("regret, K=20, m=5, i.i.d.", _scenario("regret-iid")),
    "regret-noniid": Reproduction("regret, K=20, m=5, non-i.i.d.", _scenario("regret-noniid")),
    "regret-iid-500": Reproduction("regret, K=500, m=25, i.i.d.", _scenario("regret-iid-500")),
    "regret-noniid-500": Reproduction(
        "regret, K=500, m=25, non-i.i.d.", _scenario("regret-noniid-500")
    ),
    "annealing": Reproduction("SA and ALSA against the exact optimum", _annealing),
    "annealing-graph": Reproduction("neighbour graphs of SA and ALSA, 4 of 8", _annealing_graph),
    "generalization": Reproduction("g against c/t for several beta", _generalization),
}
