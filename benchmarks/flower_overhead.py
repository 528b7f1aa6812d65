"""What `Selected` adds to a round of Flower's simulation engine, measured against plain FedAvg.

    python benchmarks/flower_overhead.py [--rounds N] [--json]

1,000 simulated clients, 50 of them in a round, training that does nothing; at most 1.1 times plain
FedAvg. The two take turns, round by round, and the medians are compared. Needs
`pip install 'bsfl[flower]' 'flwr[simulation]'`.
"""

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from clock import machine

N_CLIENTS, COHORT, ROUNDS, LIMIT = 1000, 50, 20, 1.1


def client_app():
    """Return clients that send back what they were sent, and say who they are."""
    from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message, context):
        metrics = MetricRecord({"num-examples": 1})
        content = {"arrays": message.content["arrays"], "metrics": metrics}
        return Message(RecordDict(content), reply_to=message)

    @app.query()
    def query(message, context):
        config = ConfigRecord(dict(context.node_config))
        return Message(RecordDict({"node-config": config}), reply_to=message)

    return app


def server_app(rounds, times):
    """Return a server that plays rounds of both in turn and writes down how long they took."""
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    from bsfl.integrations.flower import BSFL, Scheduler, Selected

    app = ServerApp()
    settings = {"fraction_train": 0.0001, "min_train_nodes": COHORT, "fraction_evaluate": 0.0}

    @app.main()
    def main(grid, context):
        arrays = ArrayRecord({"w": Array(np.zeros(1000))})
        strategies = {
            "plain": FedAvg(**settings),
            "selected": Selected(FedAvg(**settings), Scheduler(BSFL(), cohort_size=COHORT)),
        }
        for _ in range(1 + rounds):
            for name, strategy in strategies.items():
                start = time.perf_counter()
                strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
                times.setdefault(name, []).append(time.perf_counter() - start)

    return app


def measure(rounds):
    """Return the times of all rounds by strategy; the first round of each asks and warms up."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    os.environ["FLWR_HOME"] = tempfile.mkdtemp()
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    times = {}
    run_simulation(
        server_app=server_app(rounds, times),
        client_app=client_app(),
        num_supernodes=N_CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each kind")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    times = measure(args.rounds)
    medians = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    result = {
        "machine": machine(),
        "rounds": args.rounds,
        "plain_ms": round(1e3 * medians["plain"]),
        "selected_ms": round(1e3 * medians["selected"]),
        "ratio": round(medians["selected"] / medians["plain"], 3),
        "first_s": round(times["selected"][0], 1),
        "limit": LIMIT,
    }
    if args.json:
        print(json.dumps(result))
        return
    print(result["machine"])
    print(
        f"{N_CLIENTS:,} simulated clients, {COHORT} in a round, {args.rounds} rounds of each kind"
    )
    print(f"  plain FedAvg {result['plain_ms']} ms, Selected {result['selected_ms']} ms a round")
    print(f"  ratio {result['ratio']} (at most {LIMIT:g})")
    print(
        f"  the first round of Selected, which asks every client who it is: {result['first_s']} s"
    )


if __name__ == "__main__":
    main()
