"""What one round costs under every policy, as ratios to np.argsort of K floats in the same run.

    python benchmarks/policies.py [--json] [--quick]

One round is select, observe and close of an engine with m = 100 that has observed every client.
K = 1e5 has a limit, K = 1e6 is for information. Memory: bytes of the policy's state per client, and
the most that one round allocates per client at either size, which must not grow with K.
"""

import argparse
import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from clock import machine, ratio

from bsfl._core.engine import Engine
from bsfl._core.events import CloseRound, Describe, OpenRound, Respond, RoundOpened
from bsfl._core.state import leaves
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.types import NO_CLIENTS, OK, IntArray, RoundPlan, RoundReport

M = 100
LIMIT = 20.0
"""Times np.argsort that a round may take at K = 1e5."""
GROWTH_LIMIT = 1.1
"""Factor by which the bytes per client may differ between the two sizes."""
WARM_ROUNDS = 15
"""Rounds played before the clock starts: enough for tiers and pacers to be at work."""


def settings(name: str, k: int, rng: np.random.Generator) -> dict:
    """Return settings under which a policy has most to do."""
    return {
        "bsfl": {"alpha": 0.5 * k / M},
        "cs-ucb": {"tau_max": 60.0},
        "cs-ucb-q": {"tau_max": 60.0},
        "genie": {"mean_speed": rng.uniform(0.1, 1.0, k), "alpha": 0.5 * k / M},
        "rbcs-f": {
            "tau_max": 60.0,
            "compute": rng.uniform(0.1, 1.0, k),
            "transfer": rng.uniform(0.1, 1.0, k),
        },
        "fedcs": {
            "tau_max": 60.0,
            "latency_s": rng.uniform(1.0, 60.0, k),
            "upload_s": rng.uniform(0.01, 0.5, k),
        },
        "oort": {"tau_max": 60.0},
        "tifl": {"tau_max": 60.0, "rounds": 1000},
        "age": {"tau_max": 60.0},
        "luo": {"tau_max": 60.0},
    }.get(name, {})


class Life:
    """An engine that has observed every client, and goes on round by round."""

    def __init__(self, policy: Policy, k: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.engine = Engine(policy, RoundPlan(target_responses=M), n_clients=k)
        everyone = np.arange(k)
        samples = rng.integers(10, 500, k).astype(float)
        self.engine.run(Describe(clients=everyone, attributes={"samples": samples}))
        self.latency_s = rng.uniform(1.0, 60.0, k)
        first = RoundOpened(
            round=1,
            cohort=everyone,
            n_invited=k,
            target_responses=k,
            deadline_s=None,
            is_timed=False,
            busy=NO_CLIENTS,
            response_rate=self.engine.task.cohort_response_rate,
            selection=None,
            context=None,
            now_s=0.0,
        )
        self.engine.apply(first)
        self.respond(first)
        for _ in range(WARM_ROUNDS):
            self.one_round()

    def report(self, cohort: IntArray) -> RoundReport:
        """Return the responses of a cohort."""
        return RoundReport(
            clients=cohort,
            latency_s=self.latency_s[cohort] * self.rng.uniform(0.9, 1.1, len(cohort)),
            outcome=np.full(len(cohort), OK, dtype=np.int8),
            loss=self.rng.uniform(0.1, 2.0, len(cohort)),
            samples=np.full(len(cohort), np.nan),
            invited=NO_CLIENTS,
        )

    def respond(self, opened: RoundOpened) -> None:
        """Report a cohort and close its round."""
        self.engine.run(Respond(round=opened.round, report=self.report(opened.cohort)))
        self.engine.run(CloseRound(round=opened.round))

    def one_round(self) -> None:
        """Select and learn."""
        self.respond(self.engine.run(OpenRound()))

    def state_bytes(self) -> int:
        """Return the memory of all that the policy has learned."""
        return sum(np.asarray(leaf).nbytes for _, leaf in leaves(self.engine.policy_state))

    def round_bytes(self) -> int:
        """Return the most memory that one round holds beyond the state."""
        tracemalloc.start()
        try:
            self.one_round()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def bench(name: str, k: int, repeats: int) -> dict:
    rng = np.random.default_rng(0)
    life = Life(make_policy(name, **settings(name, k, rng)), k, rng)
    u = rng.random(k)
    took = ratio(life.one_round, lambda: np.argsort(u), repeats)
    return {
        "ratio": round(took, 2),
        "state_bytes": round(life.state_bytes() / k, 1),
        "round_bytes": round(life.round_bytes() / k, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, for a look")
    args = parser.parse_args()
    small, large = 100_000, 1_000_000
    rows = []
    for name in POLICIES:
        at_small = bench(name, small, 5 if args.quick else 31)
        at_large = bench(name, large, 3 if args.quick else 7)
        bytes_small, bytes_large = (
            r["state_bytes"] + r["round_bytes"] for r in (at_small, at_large)
        )
        fast = at_small["ratio"] <= LIMIT
        linear = bytes_large <= GROWTH_LIMIT * bytes_small
        rows.append({"policy": name, "1e5": at_small, "1e6": at_large, "met": fast and linear})
    if args.json:
        print(json.dumps({"machine": machine(), "limit": LIMIT, "policies": rows}))
        return
    print(machine())
    print(f"\nselect + observe, m = {M}, time / np.argsort (at most {LIMIT:g} at K = 1e5)")
    print("bytes per client: the state, and what one round needs beside it")
    names = ("K = 1e5", "K = 1e6", "state", "round 1e5", "round 1e6")
    print(f"\n{'policy':<17}" + "".join(f"{name:>11}" for name in names))
    for row in rows:
        one, two = row["1e5"], row["1e6"]
        numbers = (one["ratio"], two["ratio"])
        sizes = (one["state_bytes"], one["round_bytes"], two["round_bytes"])
        cells = [f"{x:>11.2f}" for x in numbers] + [f"{x:>11.0f}" for x in sizes]
        print(f"{row['policy']:<17}{''.join(cells)}   {'met' if row['met'] else 'MISSED'}")


if __name__ == "__main__":
    main()
