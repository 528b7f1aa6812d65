"""The paper's figures, each from one name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.report import write_summary
from bsfl.report.style import save
from bsfl.scenario.scenario import Scenario, find_scenario, parse_scenario
from bsfl.studies import annealing as study
from bsfl.studies.paper_figures import annealing_figure, generalization_figure, graph_figure

QUICK_PART, QUICK_SEEDS = 10, 3
"""A quick reproduction plays a tenth of the rounds with three seeds, or trains with one."""


def figure_scenario(name: str, *, quick: bool = False) -> Scenario | None:
    """Return the scenario behind one of the paper's figures; None for a figure without one."""
    if name not in FIGURES:
        raise InvalidInput(f"unknown figure {name!r}; known are {', '.join(FIGURES)}")
    if name in STUDIES:
        return None
    scenario = find_scenario(name)
    return _quick(scenario) if quick else scenario


def _quick(scenario: Scenario) -> Scenario:
    """Return a small version: fewer rounds or less time, fewer seeds, embedded images."""
    source = dict(scenario.source)
    if scenario.learning:
        source |= {"time_s": scenario.time_s / QUICK_PART, "seeds": 1}
        embedded = {"fashion-mnist": "fashion-mnist-small"}.get(scenario.learning.dataset)
        if embedded:
            source["learning"] = {**source["learning"], "dataset": embedded}
    else:
        source |= {"rounds": scenario.rounds // QUICK_PART, "seeds": QUICK_SEEDS}
    return parse_scenario(source, name=scenario.name, file=f"{scenario.name}.toml")


def finished_study(name: str, folder: Path, *, quick: bool) -> dict[str, Any] | None:
    """Return the summary of a study that was made before in this folder."""
    path = folder / "summary.json"
    if not path.is_file():
        return None
    summary: dict[str, Any] = json.loads(path.read_text())
    if (summary.get("study"), summary.get("quick")) != (name, quick):
        raise InvalidInput(f"{folder} holds other results; choose another folder")
    return summary


def make_study(name: str, folder: Path, *, quick: bool, jobs: int) -> dict[str, Any]:
    """Make a figure without a scenario, unless it is there already, and return its summary."""
    done = finished_study(name, folder, quick=quick)
    if done:
        return done
    summary = {"study": name, "quick": quick, **STUDIES[name](folder, quick, jobs)}
    write_summary(folder, summary)
    return summary


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
    return summary


def _annealing_graph(folder: Path, quick: bool, jobs: int) -> dict[str, Any]:
    problem = study.draw_problem(3, n_clients=8, m=4)
    graphs = {name: study.neighbour_graph(problem, name) for name in ("swap", "symmetric")}
    save(graph_figure(graphs["swap"], graphs["symmetric"]), folder, "annealing-graph")
    summary = {
        "states": len(graphs["swap"].cohorts),
        "edges": {name: len(graph.edges) for name, graph in graphs.items()},
    }
    return summary


def _generalization(folder: Path, quick: bool, jobs: int) -> dict[str, Any]:
    save(generalization_figure(), folder, "generalization")
    return {"target_rate": 0.25, "betas": [1, 2, 3, 5]}


STUDIES: dict[str, Callable[[Path, bool, int], dict[str, Any]]] = {
    "annealing": _annealing,
    "annealing-graph": _annealing_graph,
    "generalization": _generalization,
}
"""Figures without a scenario: (folder, quick, jobs) -> summary; they write the figures."""

FIGURES = {
    "regret-iid": "regret, K=20, m=5, i.i.d.",
    "regret-noniid": "regret, K=20, m=5, non-i.i.d.",
    "regret-iid-500": "regret, K=500, m=25, i.i.d.; the paper could not compute it",
    "regret-noniid-500": "regret, K=500, m=25, non-i.i.d.; the paper could not compute it",
    "linear-iid": "linear regression, i.i.d.",
    "linear-noniid": "linear regression, non-i.i.d.",
    "fmnist-iid": "CNN on Fashion-MNIST, i.i.d.",
    "fmnist-iid-paper": "CNN on Fashion-MNIST, i.i.d., network of the paper",
    "fmnist-noniid": "CNN on Fashion-MNIST, non-i.i.d.",
    "cifar10-iid": "CNN on CIFAR-10, i.i.d.",
    "cifar10-noniid": "CNN on CIFAR-10, non-i.i.d.",
    "annealing": "SA and ALSA against the exact optimum",
    "annealing-graph": "neighbour graphs of SA and ALSA, 4 of 8",
    "generalization": "g against c/t for several beta",
}
"""Every figure and what it shows; those not in STUDIES are scenarios of the same name."""
