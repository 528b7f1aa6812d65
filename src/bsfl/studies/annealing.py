"""The gap between annealing and the optimum, and a comparison of its neighbourhoods."""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.experiments.parallel import in_parallel
from bsfl.experiments.statistics import interval
from bsfl.experiments.tables import Cell, Column, Table
from bsfl.random import stream
from bsfl.report import Report
from bsfl.report.plots import Bars, Line, Panel, Plot, Points, Rule, curve
from bsfl.solvers import PROPOSALS, Proposal, anneal, energy, solve_exact
from bsfl.studies.study import Effort
from bsfl.types import FloatArray, IntArray, Rng

ALPHA = 1.0
PAPER_WIN_RATE = 0.983
"""Share of runs in which ALSA ended above SA, according to the paper."""
STATES = ("last_state", "best_state")
"""States of a walk that are compared: the last, as in the paper, and the best visited."""
NAMES = {
    "swap": "SA (swap)",
    "newcomer-first": "ALSA (newcomer first)",
    "symmetric": "ALSA (uniform)",
    "drop-weakest": "ALSA (drop the weakest only)",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A random instance: indices u in [0, 1] and g in [-1, 1], cohort size m."""

    u: FloatArray
    g: FloatArray
    m: int

    def energy(self, cohort: IntArray) -> float:
        """Return the energy of a cohort."""
        return energy(self.u, self.g, cohort, ALPHA)

    def optimum(self) -> float:
        """Return the energy of the best cohort."""
        return self.energy(solve_exact(self.u, self.g, self.m, ALPHA))

    def walk(self, proposal: Proposal, steps: int, rng: Rng) -> FloatArray:
        """Return the energies of an annealing run, at the start and after every step."""
        start = self.u, self.g, self.m, ALPHA
        return anneal(*start, steps=steps, proposal=proposal, rng=rng).energies


def draw_problem(seed: int, *, n_clients: int | None = None, m: int | None = None) -> Problem:
    """Return a random instance; by default K is 50 to 500 and m/K 0.05 to 0.5."""
    rng = stream(seed, "annealing-problem")
    k = int(rng.integers(50, 501)) if n_clients is None else n_clients
    size = max(1, round(k * rng.uniform(0.05, 0.5))) if m is None else m
    return Problem(rng.random(k), rng.uniform(-1, 1, k), size)


def energy_paths(
    problem: Problem, *, steps: int, runs: int, jobs: int
) -> tuple[dict[str, FloatArray], float]:
    """Return the energies [run, step] of each proposal on one problem, and the optimum."""
    walks = [(p, steps, stream(i, f"annealing-{p}")) for p in PROPOSALS for i in range(runs)]
    found = np.array(in_parallel(problem.walk, walks, jobs=jobs))
    paths = found.reshape(len(PROPOSALS), runs, steps + 1)
    return dict(zip(PROPOSALS, paths, strict=True)), problem.optimum()


def tournament(*, instances: int, steps: int, jobs: int) -> dict[str, Any]:
    """Return win rates over swap and gaps to the optimum, over random instances.

    A gap is (optimum - energy) / (optimum - mean energy of a random cohort): 0 optimal, 1 no better
    than chance. A win is a smaller gap than SA's (swap) on the same instance; a tie is none.
    """
    gaps = np.array(in_parallel(_gaps, [(seed, steps) for seed in range(instances)], jobs=jobs))
    proposals: dict[str, dict[str, Any]] = {proposal: {} for proposal in PROPOSALS}
    for i, proposal in enumerate(PROPOSALS):
        for j, state in enumerate(STATES):
            own, swap = gaps[:, i, j], gaps[:, PROPOSALS.index("swap"), j]
            proposals[proposal][state] = {
                "win_rate_over_swap": None if proposal == "swap" else float((own < swap).mean()),
                "mean_gap": interval(own).as_json(),
            }
    return {"instances": instances, "steps": steps, "proposals": proposals}


def _gaps(seed: int, steps: int) -> FloatArray:
    """Return the gaps on one instance, [proposal, state]."""
    problem = draw_problem(seed)
    rng, k = stream(seed, "annealing-chance"), len(problem.u)
    by_chance = [problem.energy(rng.choice(k, problem.m, replace=False)) for _ in range(50)]
    walks = [problem.walk(p, steps, stream(seed, f"walk-{p}")) for p in PROPOSALS]
    reached = np.array([[walk[-1], walk.max()] for walk in walks])
    best = problem.optimum()
    return np.asarray((best - reached) / (best - np.mean(by_chance)))


@dataclass(frozen=True, slots=True)
class NeighbourGraph:
    """All cohorts of a small problem, [state, member], and pairs that are neighbours, [edge, 2]."""

    cohorts: IntArray
    energies: FloatArray
    edges: IntArray


def neighbour_graph(problem: Problem, proposal: str) -> NeighbourGraph:
    """Return the graph on which SA ("swap") or ALSA as published ("symmetric") walks."""
    cohorts = np.array(list(combinations(range(len(problem.u)), problem.m)))
    energies = np.array([problem.energy(cohort) for cohort in cohorts])
    states = [frozenset(cohort) for cohort in cohorts.tolist()]
    weakest = [{min(s, key=problem.u.item), min(s, key=problem.g.item)} for s in states]
    edges = []
    for i, j in combinations(range(len(states)), 2):
        if len(states[i] & states[j]) == problem.m - 1:
            (leaves,), (enters,) = states[i] - states[j], states[j] - states[i]
            if proposal == "swap" or leaves in weakest[i] or enters in weakest[j]:
                edges.append((i, j))
    return NeighbourGraph(cohorts, energies, np.array(edges))


class Annealing:
    """How far are SA and ALSA from the exact optimum, and which of them is better?"""

    def play(self, folder: Path, effort: Effort) -> Report:
        steps, runs, instances = (2000, 5, 200) if effort.quick else (5000, 20, 2000)
        problem = draw_problem(0, n_clients=500, m=25)
        paths, optimum = energy_paths(problem, steps=steps, runs=runs, jobs=effort.jobs)
        games = tournament(instances=instances, steps=1000, jobs=effort.jobs)
        one_problem = {
            "n_clients": 500,
            "cohort_size": 25,
            "steps": steps,
            "optimum": optimum,
            "mean_energy_at_the_end": {p: float(e[:, -1].mean()) for p, e in paths.items()},
            "mean_best_energy": {p: float(e.max(axis=1).mean()) for p, e in paths.items()},
        }
        return Report(
            title="SA and ALSA against the exact optimum",
            numbers={
                "paper_win_rate_alsa_over_sa": PAPER_WIN_RATE,
                "tournament": games,
                "one_problem": one_problem,
            },
            tables=[tournament_table(games)],
            plots=[annealing_plot(paths, optimum, games)],
        )


def tournament_table(games: dict[str, Any]) -> Table:
    """Return one row per proposal."""
    rows: list[list[Cell]] = []
    for proposal, by_state in games["proposals"].items():
        row: list[Cell] = [proposal]
        for state in STATES:
            row += [by_state[state]["win_rate_over_swap"], by_state[state]["mean_gap"]["mean"]]
        rows.append(row)
    heads = ("last state: wins", "last state: gap", "best state: wins", "best state: gap")
    return Table(
        title=f"{games['instances']:,} random instances, {games['steps']:,} steps; "
        f"the paper: ALSA above SA in {PAPER_WIN_RATE:.1%}",
        columns=[Column("proposal"), *(Column(head, form=".1%") for head in heads)],
        rows=rows,
        note="wins: over swap; gap: 0 % is the exact optimum, 100 % a random cohort",
    )


def annealing_plot(paths: dict[str, FloatArray], optimum: float, games: dict[str, Any]) -> Plot:
    """Return energy against steps with the optimum as a line, and the gaps of the tournament."""
    n_runs = len(next(iter(paths.values())))
    walks = [curve(NAMES[p], np.arange(e.shape[1]), e) for p, e in paths.items()]
    names, rows = list(games["proposals"]), games["proposals"].values()
    gaps = []
    for state in STATES:
        height = np.array([100 * row[state]["mean_gap"]["mean"] for row in rows])
        label = state.replace("_", " ")
        gaps.append(Bars(label=label, names=names, height=height, is_stacked=False))
    return Plot(
        name="annealing",
        caption="The gap between annealing and the optimum: on one problem, and on many.",
        panels=[
            Panel(
                x="step",
                y="energy of the current state",
                title=f"25 of 500 clients, median and quartiles of {n_runs} runs",
                marks=[Rule(at=optimum, label="exact optimum"), *walks],
            ),
            Panel(
                y="gap to the optimum (%, random = 100)",
                title=f"{games['instances']:,} random instances, {games['steps']:,} steps",
                marks=gaps,
            ),
        ],
    )


class AnnealingGraph:
    """Which cohorts are neighbours of each other in SA and ALSA, for cohorts of 4 out of 8?"""

    def play(self, folder: Path, effort: Effort) -> Report:
        problem = draw_problem(3, n_clients=8, m=4)
        titles = {
            "swap": "SA: any one client differs",
            "symmetric": "ALSA: the one that differs is the weakest of its cohort",
        }
        graphs = {name: neighbour_graph(problem, name) for name in titles}
        place = _rings(graphs["swap"])
        names = [str(cohort) for cohort in graphs["swap"].cohorts.tolist()]
        n_edges = {name: len(graph.edges) for name, graph in graphs.items()}
        panels = []
        for name, graph in graphs.items():
            x, y = np.insert(place[graph.edges], 2, np.nan, axis=1).reshape(-1, 2).T
            edges = Line(label="", x=x, y=y, is_grey=True)
            x, y = place.T
            states = Points(label="energy", x=x, y=y, value=graph.energies, names=names)
            degree = 2 * n_edges[name] / len(names)
            title = f"{titles[name]}\n{n_edges[name]} edges, {degree:.1f} neighbours a state"
            panels.append(Panel(title=title, marks=[edges, states], has_axes=False))
        title = "Cohorts of 4 out of 8; ring = clients that differ from the optimum"
        plot = Plot(name="annealing-graph", caption=f"{title}.", panels=panels, title=title)
        return Report(
            title="Neighbour graphs of SA and ALSA",
            numbers={"states": len(names), "edges": n_edges},
            plots=[plot],
        )


def _rings(graph: NeighbourGraph) -> FloatArray:
    """Return the position of every state: its distance from the optimum is the radius."""
    best = set(graph.cohorts[np.argmax(graph.energies)].tolist())
    distance = np.array([len(best - set(c)) for c in graph.cohorts.tolist()])
    place = np.zeros((len(distance), 2))
    for ring in np.unique(distance):
        members = np.flatnonzero(distance == ring)
        angle = 2 * np.pi * np.arange(len(members)) / len(members) + 0.35 * ring
        place[members] = ring * np.column_stack([np.cos(angle), np.sin(angle)])
    return place
