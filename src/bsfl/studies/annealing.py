"""How far annealing stays from the optimum, and which neighbourhood wins."""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.analysis.statistics import interval
from bsfl.analysis.tables import Table
from bsfl.extras import in_parallel
from bsfl.randomness import stream
from bsfl.records import FloatArray, IntArray
from bsfl.report import Findings
from bsfl.report.plots import Bars, Line, Panel, Plot, Points, Rule, curve
from bsfl.solvers import PROPOSALS, anneal, energy, solve_exact
from bsfl.studies.study import Effort

ALPHA = 1.0
PAPER_WIN_RATE = 0.983
"""Share of runs in which, the paper says, ALSA ended above SA."""
NAMES = {
    "swap": "SA (swap)",
    "symmetric": "ALSA as printed (symmetric)",
    "drop-weakest": "ALSA, accelerating half (drop-weakest)",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One drawn instance: indices u in [0, 1] and g in [-1, 1], m places."""

    u: FloatArray
    g: FloatArray
    m: int


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

    def path(proposal: Any, seed: int) -> FloatArray:
        rng = stream(seed, f"annealing-{proposal}")
        walk = anneal(
            problem.u, problem.g, problem.m, ALPHA, steps=steps, proposal=proposal, rng=rng
        )
        return walk.energies

    tasks = [(proposal, seed) for proposal in PROPOSALS for seed in range(runs)]
    found = in_parallel(path, tasks, jobs=jobs)
    paths: dict[str, FloatArray] = {
        p: np.array(found[i * runs : (i + 1) * runs]) for i, p in enumerate(PROPOSALS)
    }
    best = solve_exact(problem.u, problem.g, problem.m, ALPHA)
    return paths, energy(problem.u, problem.g, best, ALPHA)


def tournament(*, instances: int, steps: int, jobs: int) -> dict[str, Any]:
    """Return win rates over swap and gaps to the optimum, over random instances.

    A win is a higher energy than SA's (swap) on the same instance, both of the state in which the
    walk ends, as the paper counts, and of the best state it visited. Ties are not wins. A gap is
    (optimum - energy) / (optimum - mean energy of a random cohort): 0 optimal, 1 no better than
    chance.
    """
    played = in_parallel(_play, [(seed, steps) for seed in range(instances)], jobs=jobs)
    scores = np.array(played)  # [instance, proposal, (last, best)]
    swap = scores[:, PROPOSALS.index("swap")]
    result: dict[str, Any] = {"instances": instances, "steps": steps, "proposals": {}}
    for i, proposal in enumerate(PROPOSALS):
        row: dict[str, Any] = {}
        for j, state in enumerate(("last", "best")):
            wins = scores[:, i, j] < swap[:, j]  # scores are gaps: lower is better
            row[f"{state}_state"] = {
                "win_rate_over_swap": None if proposal == "swap" else float(wins.mean()),
                "mean_gap": interval(scores[:, i, j]).as_json(),
            }
        result["proposals"][proposal] = row
    return result


def _play(seed: int, steps: int) -> list[list[float]]:
    """Return the gap of the last and of the best state for each proposal."""
    problem = draw_problem(seed)
    u, g, m = problem.u, problem.g, problem.m
    best = energy(u, g, solve_exact(u, g, m, ALPHA), ALPHA)
    rng = stream(seed, "annealing-chance")
    chance = np.mean([energy(u, g, rng.choice(len(u), m, replace=False), ALPHA) for _ in range(50)])
    gaps = []
    for proposal in PROPOSALS:
        walk = anneal(
            u, g, m, ALPHA, steps=steps, proposal=proposal, rng=stream(seed, f"walk-{proposal}")
        )
        reached = np.array([walk.energies[-1], walk.energies.max()])
        gaps.append(((best - reached) / (best - chance)).tolist())
    return gaps


@dataclass(frozen=True, slots=True)
class NeighbourGraph:
    """All cohorts of a small problem and which of them are neighbours.

    Attributes:
        cohorts: [state, member].
        energies: E of every state.
        edges: Pairs of states, [edge, 2].
    """

    cohorts: IntArray
    energies: FloatArray
    edges: IntArray


def neighbour_graph(problem: Problem, proposal: str) -> NeighbourGraph:
    """Return the graph on which SA ("swap") or ALSA as printed ("symmetric") walks."""
    u, g, m = problem.u, problem.g, problem.m
    cohorts = np.array(list(combinations(range(len(u)), m)))
    states = [frozenset(c) for c in cohorts.tolist()]
    energies = np.array([energy(u, g, c, ALPHA) for c in cohorts])
    edges = []
    for i, j in combinations(range(len(states)), 2):
        if len(states[i] & states[j]) != m - 1:
            continue
        (leaves,), (enters,) = states[i] - states[j], states[j] - states[i]
        weakest = _weakest(states[i], u, g), _weakest(states[j], u, g)
        if proposal == "swap" or leaves in weakest[0] or enters in weakest[1]:
            edges.append((i, j))
    return NeighbourGraph(cohorts, energies, np.array(edges))


def _weakest(state: frozenset[int], u: FloatArray, g: FloatArray) -> set[int]:
    return {min(state, key=lambda k: u[k]), min(state, key=lambda k: g[k])}


@dataclass(frozen=True, slots=True)
class Annealing:
    """How far SA and ALSA stay from the exact optimum, and which of them wins."""

    def play(self, folder: Path, effort: Effort) -> Findings:
        steps, runs, instances = (2000, 5, 200) if effort.quick else (5000, 20, 2000)
        problem = draw_problem(0, n_clients=500, m=25)
        paths, optimum = energy_paths(problem, steps=steps, runs=runs, jobs=effort.jobs)
        games = tournament(instances=instances, steps=1000, jobs=effort.jobs)
        numbers = {
            "paper_win_rate_alsa_over_sa": PAPER_WIN_RATE,
            "tournament": games,
            "one_problem": {
                "n_clients": 500,
                "cohort_size": 25,
                "steps": steps,
                "optimum": optimum,
                "mean_energy_at_the_end": {p: float(e[:, -1].mean()) for p, e in paths.items()},
                "mean_best_energy": {p: float(e.max(axis=1).mean()) for p, e in paths.items()},
            },
        }
        return Findings(
            title="SA and ALSA against the exact optimum",
            numbers=numbers,
            tables=[tournament_table(games)],
            plots=[annealing_plot(paths, optimum, games)],
        )


def tournament_table(games: dict[str, Any]) -> Table:
    """Return one row per proposal."""
    rows = []
    for proposal, row in games["proposals"].items():
        cells = [proposal]
        for state in ("last_state", "best_state"):
            wins = row[state]["win_rate_over_swap"]
            cells += ["–" if wins is None else f"{wins:.1%}"]
            cells += [f"{row[state]['mean_gap']['mean']:.1%}"]
        rows.append(cells)
    return Table(
        title=f"{games['instances']:,} random instances, {games['steps']:,} steps; "
        f"the paper: ALSA above SA in {PAPER_WIN_RATE:.1%}",
        columns=["proposal", "last state: wins", "its gap", "best state: wins", "its gap"],
        rows=rows,
        note="wins: over swap; gap: 0 % is the exact optimum, 100 % a random cohort",
    )


def annealing_plot(paths: dict[str, FloatArray], optimum: float, games: dict[str, Any]) -> Plot:
    """Return energy against steps with the optimum as a line, and the gaps of the tournament."""
    n_runs = len(next(iter(paths.values())))
    walks = [curve(NAMES[p], np.arange(e.shape[1]), e) for p, e in paths.items()]
    gaps = [
        Bars(
            label=f"{state.partition('_')[0]} state",
            names=list(games["proposals"]),
            height=np.array(
                [100 * row[state]["mean_gap"]["mean"] for row in games["proposals"].values()]
            ),
            is_stacked=False,
        )
        for state in ("last_state", "best_state")
    ]
    return Plot(
        name="annealing",
        caption="How far annealing stays from the optimum: one problem, and many.",
        panels=[
            Panel(
                x="step",
                y="energy of the current state",
                title=f"25 of 500 clients, mean of {n_runs} runs with 95 % bands",
                marks=[Rule(at=optimum, label="exact optimum"), *walks],
            ),
            Panel(
                y="distance from the optimum (%, random cohort = 100)",
                title=f"{games['instances']:,} random instances, {games['steps']:,} steps",
                marks=gaps,
            ),
        ],
    )


@dataclass(frozen=True, slots=True)
class AnnealingGraph:
    """Which cohorts SA and ALSA can go to from each, for cohorts of 4 out of 8."""

    def play(self, folder: Path, effort: Effort) -> Findings:
        problem = draw_problem(3, n_clients=8, m=4)
        graphs = {name: neighbour_graph(problem, name) for name in ("swap", "symmetric")}
        place = _rings(graphs["swap"])
        panels = []
        for name, title in (
            ("swap", "SA: any one client differs"),
            ("symmetric", "ALSA: the one that differs is the weakest of its cohort"),
        ):
            graph = graphs[name]
            ends = np.insert(place[graph.edges], 2, np.nan, axis=1).reshape(-1, 2).T
            degree = 2 * len(graph.edges) / len(graph.cohorts)
            edges = Line(label="", x=ends[0], y=ends[1], is_grey=True)
            names = [str(cohort) for cohort in graph.cohorts.tolist()]
            x, y = place.T
            states = Points(label="energy", x=x, y=y, value=graph.energies, names=names)
            count = f"{len(graph.edges)} edges, {degree:.1f} neighbours a state"
            panels.append(Panel(title=f"{title}\n{count}", marks=[edges, states], has_axes=False))
        return Findings(
            title="Neighbour graphs of SA and ALSA",
            numbers={
                "states": len(graphs["swap"].cohorts),
                "edges": {name: len(graph.edges) for name, graph in graphs.items()},
            },
            plots=[
                Plot(
                    name="annealing-graph",
                    caption="Cohorts of 4 out of 8; ring = clients that differ from the optimum.",
                    panels=panels,
                    title="Cohorts of 4 out of 8; ring = clients that differ from the optimum",
                )
            ],
        )


def _rings(graph: NeighbourGraph) -> FloatArray:
    """Return a place for every state: distance from the optimum as radius, spread by energy."""
    best = set(graph.cohorts[np.argmax(graph.energies)].tolist())
    distance = np.array([len(best - set(c)) for c in graph.cohorts.tolist()])
    place = np.zeros((len(distance), 2))
    for ring in np.unique(distance):
        members = np.flatnonzero(distance == ring)
        angle = 2 * np.pi * np.arange(len(members)) / len(members) + 0.35 * ring
        place[members] = ring * np.column_stack([np.cos(angle), np.sin(angle)])
    return place
