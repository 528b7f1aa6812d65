"""What a simulated round costs, genie and regret included, in units of one exact solve.

    python benchmarks/simulation.py [--json]

K = 500, m = 25, 3,000 rounds, one seed, BSFL; at most 10 exact solves a round.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from clock import machine

from bsfl.experiments import read_scenario
from bsfl.simulation import simulate
from bsfl.solvers import solve_exact

ROUNDS, LIMIT = 3000, 10.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    scenario = read_scenario("regret-iid-500")
    fleet = scenario.clients.build(seed=0)
    rng = np.random.default_rng(0)
    u, g = rng.random(fleet.n_clients), rng.uniform(-1, 1, fleet.n_clients)
    rounds = simulate(
        scenario.policy("bsfl", fleet),
        fleet,
        cohort_size=scenario.cohort_size,
        rounds=ROUNDS,
        objective=scenario.objective,
    )
    in_rounds = in_solves = 0.0
    while True:  # one round and one solve in turns, so that a busy machine slows both alike
        start = time.perf_counter()
        record = next(rounds, None)
        middle = time.perf_counter()
        solve_exact(u, g, scenario.cohort_size, 1.0)
        end = time.perf_counter()
        if record is None:
            break
        in_rounds += middle - start
        in_solves += end - middle
    result = {
        "machine": machine(),
        "rounds": ROUNDS,
        "round_us": round(1e6 * in_rounds / ROUNDS),
        "solve_us": round(1e6 * in_solves / ROUNDS),
        "ratio": round(in_rounds / in_solves, 2),
        "limit": LIMIT,
    }
    if args.json:
        print(json.dumps(result))
        return
    print(result["machine"])
    print(f"K = 500, m = 25, {ROUNDS:,} rounds of BSFL with its regret")
    print(f"  a round takes {result['round_us']} us, an exact solve {result['solve_us']} us")
    print(f"  ratio {result['ratio']} (at most {LIMIT:g})")


if __name__ == "__main__":
    main()
