"""What `Selected` adds to a round of Flower's simulation engine, measured against plain FedAvg.

    python benchmarks/flower_overhead.py [--rounds N] [--json]

1,000 simulated clients, 50 of them in a round, training that does nothing; at most 1.1 times plain
FedAvg, and 2 s more in the first round. The two take turns, round by round, and the medians are
compared, of wall time and of this process's own processor time, which a busy machine spoils less.
Needs `pip install 'bsfl[flower]' 'flwr[simulation]'`.
"""

import argparse
import json
import logging
import os
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
                start = np.array([time.perf_counter(), time.process_time()])
                strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
                end = np.array([time.perf_counter(), time.process_time()])
                times.setdefault(name, []).append(end - start)

    return app


def measure(rounds):
    """Return wall and processor times of all rounds by strategy; the first ones warm up."""
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
    medians = {name: np.median(rounds[1:], axis=0) for name, rounds in times.items()}
    (plain_s, plain_cpu_s), (selected_s, selected_cpu_s) = medians["plain"], medians["selected"]
    result = {
        "machine": machine(),
        "rounds": args.rounds,
        "plain_ms": round(1e3 * plain_s),
        "selected_ms": round(1e3 * selected_s),
        "ratio": round(selected_s / plain_s, 3),
        "plain_cpu_ms": round(1e3 * plain_cpu_s),
        "selected_cpu_ms": round(1e3 * selected_cpu_s),
        "cpu_ratio": round(selected_cpu_s / plain_cpu_s, 3),
        "first_more_s": round(times["selected"][0][0] - plain_s, 1),
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
        f"  processor time {result['plain_cpu_ms']} ms and {result['selected_cpu_ms']} ms, "
        f"ratio {result['cpu_ratio']}"
    )
    print(f"  the first round of Selected took {result['first_more_s']} s more (at most 2)")


if __name__ == "__main__":
    main()
