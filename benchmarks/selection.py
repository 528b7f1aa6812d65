"""How fast a cohort is selected, as ratios to np.argsort of the same size in the same process.

    python benchmarks/selection.py [--json] [--quick]

1. solve_exact at K = 1e6, m = 1000 on bandit-like, independent and anti-correlated inputs
2. one Scheduler round (select + observe) at K = 1e6, m = 100, and the bytes per client it keeps
3. K = 500, m = 25: against annealing with 5,000 steps, over 1,000 random instances
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from clock import machine, ratio, seconds

from bsfl import BSFL, Scheduler
from bsfl._core.state import leaves
from bsfl.solvers import PROPOSALS, energy, solve_annealing, solve_exact

STATE_LIMIT = 150
"""Bytes per client of pool, task and policy together."""


def solver_inputs(k: int, m: int, rng: np.random.Generator):
    """Yield (name, limit, u, g, alpha)."""
    t, count = 20_000, rng.poisson(20, k) + 1
    u = rng.uniform(0.1, 1.0, k) + np.sqrt((m + 1) * np.log(t) / count)
    g = m / k - count / t
    for spread in (1, 10, 100):
        yield f"bandit, alpha g spread {spread} x", 0.5, u, g, spread * np.ptp(u) / np.ptp(g)
    yield "independent", 0.5, rng.random(k), rng.random(k), 1.0
    u = rng.random(k)
    for alpha in (0.5, 1.0, 2.0):
        yield f"anti-correlated, alpha {alpha:g}", 2.5, u, -u, alpha
    for noise in (0.1, 0.01, 0.001):
        g = -u + noise * rng.normal(size=k)
        yield f"anti-correlated, alpha 1, noise {noise:g}", None, u, g, 1.0


def bench_solver(k: int, m: int) -> list[dict]:
    rng = np.random.default_rng(0)
    rows = []
    for name, limit, u, g, alpha in solver_inputs(k, m, rng):
        took = ratio(lambda u=u, g=g, a=alpha: solve_exact(u, g, m, a), lambda u=u: np.argsort(u))
        rows.append({"input": name, "ratio": round(took, 2), "limit": limit})
    return rows


def bench_scheduler(k: int, m: int) -> dict:
    rng = np.random.default_rng(1)
    scheduler = Scheduler(BSFL(alpha=0.5 * k / m), cohort_size=m, seed=0)
    scheduler.join(range(k))
    scheduler.observe(dict.fromkeys(scheduler.select(), 1.0))
    state, engine = scheduler.state, scheduler._engine  # as after many rounds
    count = rng.poisson(20, k) + 1
    engine.task.invitations[:] = engine.task.participations[:] = count
    engine.pool.responded[:] = state.memory.observed[:] = count
    state.memory.mean[:] = rng.uniform(0.01, 1.0, k)
    engine.task.round = int(20 * k / m)

    def one_round() -> None:
        scheduler.observe({c: 1.0 + c % 7 for c in scheduler.select()})

    u = rng.random(k)
    states = (engine.pool, engine.task, scheduler.state)
    arrays = [np.asarray(leaf) for state in states for _, leaf in leaves(state)]
    return {
        "ratio": round(ratio(one_round, lambda: np.argsort(u)), 2),
        "limit": 5.0,
        "ms": round(1e3 * seconds(one_round), 1),
        "state_bytes_per_client": sum(a.nbytes for a in arrays if a.ndim) / k,
        "state_limit": STATE_LIMIT,
    }


def bench_annealing(k: int, m: int, steps: int, instances: int) -> dict:
    rng = np.random.default_rng(2)
    u, g = rng.random(k), rng.uniform(-1, 1, k)
    exact = seconds(lambda: solve_exact(u, g, m, 1.0), 101)
    speedup, lower = {}, 0
    for proposal in PROPOSALS:

        def walk(p=proposal):
            return solve_annealing(u, g, m, 1.0, steps=steps, proposal=p, rng=rng)

        speedup[proposal] = round(seconds(walk, 5) / exact)
    for _ in range(instances):
        u, g = rng.random(k), rng.uniform(-1, 1, k)
        best = energy(u, g, solve_exact(u, g, m, 1.0), 1.0)
        walked = solve_annealing(u, g, m, 1.0, steps=steps, proposal="drop-weakest", rng=rng)
        lower += best < energy(u, g, walked, 1.0) - 1e-12
    return {
        "times_faster_than": speedup,
        "exact_us": round(1e6 * exact),
        "instances": instances,
        "exact_was_lower": lower,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, for a look")
    args = parser.parse_args()
    k = 100_000 if args.quick else 1_000_000
    result = {
        "machine": machine(),
        "solver": bench_solver(k, k // 1000),
        "scheduler": bench_scheduler(k, k // 10_000),
        "annealing": bench_annealing(500, 25, 5000, 100 if args.quick else 1000),
    }
    if args.json:
        print(json.dumps(result))
        return
    print(result["machine"])
    print(f"\nsolve_exact, K = {k:,}, m = {k // 1000:,}, time / np.argsort(u)")
    for row in result["solver"]:
        limit = "" if row["limit"] is None else f"(at most {row['limit']})"
        print(f"  {row['input']:<40}{row['ratio']:6.2f} {limit}")
    one = result["scheduler"]
    print(f"\nScheduler round, K = {k:,}, m = {k // 10_000:,}")
    print(f"  time / np.argsort(u) {one['ratio']:25.2f} (at most {one['limit']:g}), {one['ms']} ms")
    print(
        f"  bytes of state per client {one['state_bytes_per_client']:20.0f} "
        f"(at most {one['state_limit']})"
    )
    two = result["annealing"]
    print(
        f"\nExact at K = 500, m = 25 takes {two['exact_us']} us; annealing with 5,000 steps takes"
    )
    for proposal, times in two["times_faster_than"].items():
        print(f"  {proposal:<40}{times:5d} x as long")
    print(f"  lower energy than drop-weakest in {two['exact_was_lower']} of {two['instances']:,}")


if __name__ == "__main__":
    main()
