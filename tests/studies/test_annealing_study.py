"""The annealing study: its graph, its tournament."""

import numpy as np
import pytest

from bsfl.studies.annealing import (
    Problem,
    draw_problem,
    energy_paths,
    neighbour_graph,
    tournament,
)


def test_problems_have_the_stated_sizes():
    problems = [draw_problem(seed) for seed in range(200)]
    assert all(50 <= len(p.u) <= 500 for p in problems)
    assert all(0.04 < p.m / len(p.u) < 0.51 for p in problems)


def test_the_graph_of_sa_is_complete_and_alsas_is_part_of_it():
    problem = draw_problem(3, n_clients=8, m=4)
    swap, alsa = neighbour_graph(problem, "swap"), neighbour_graph(problem, "symmetric")
    assert len(swap.cohorts) == 70
    assert len(swap.edges) == 70 * 4 * 4 // 2
    assert set(map(tuple, alsa.edges.tolist())) < set(map(tuple, swap.edges.tolist()))
    # the paper: at most 4 (K - m) neighbours on average
    assert 2 * len(alsa.edges) / 70 <= 4 * (8 - 4)


def test_alsa_edges_by_hand():
    # clients in falling order of both values: a cohort's weakest is its last member, so two
    # cohorts are neighbours when the one that differs comes after all that they share
    problem = Problem(np.array([0.9, 0.5, 0.1]), np.array([0.9, 0.5, 0.1]), 2)
    graph = neighbour_graph(problem, "symmetric")
    named = {tuple(sorted(tuple(graph.cohorts[s]) for s in edge)) for edge in graph.edges}
    # {0,1}-{0,2} differ in 1 and 2; {0,1}-{1,2}: 2 is last in {1,2}; {0,2}-{1,2}: 0 and 1 are
    # both before the shared 2
    assert named == {((0, 1), (0, 2)), ((0, 1), (1, 2))}


@pytest.mark.slow
def test_the_tournament_counts_wins_and_gaps():
    games = tournament(instances=30, steps=300, jobs=1)
    rows = games["proposals"]
    assert rows["swap"]["last_state"]["win_rate_over_swap"] is None
    assert rows["drop-weakest"]["last_state"]["win_rate_over_swap"] > 0.9
    for row in rows.values():
        assert 0 <= row["best_state"]["mean_gap"]["mean"] <= row["last_state"]["mean_gap"]["mean"]
    assert tournament(instances=30, steps=300, jobs=2) == games


def test_paths_stay_below_the_optimum():
    problem = draw_problem(0, n_clients=60, m=6)
    paths, optimum = energy_paths(problem, steps=200, runs=3, jobs=1)
    assert {e.shape for e in paths.values()} == {(3, 201)}
    assert max(e.max() for e in paths.values()) <= optimum + 1e-9
    assert paths["swap"][0] != pytest.approx(paths["swap"][1])
