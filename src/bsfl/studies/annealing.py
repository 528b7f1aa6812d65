"""How far annealing stays from the optimum, and which neighbourhood wins."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from bsfl.analysis.statistics import interval
from bsfl.extras import optional_imports
from bsfl.randomness import stream
from bsfl.records import FloatArray, IntArray
from bsfl.solvers import PROPOSALS, anneal, energy, solve_exact

with optional_imports():
    from joblib import Parallel, delayed

ALPHA = 1.0
PAPER_WIN_RATE = 0.983
"""Share of runs in which, the paper says, ALSA ended above SA."""


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
    found = Parallel(n_jobs=jobs)(delayed(path)(*task) for task in tasks)
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
    played = Parallel(n_jobs=jobs)(delayed(_play)(seed, steps) for seed in range(instances))
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
