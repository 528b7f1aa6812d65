"""Flower's simulation on a virtual clock: what is learned of 500 clients, and what it brings.

    python benchmarks/flower_simulation.py [--rounds N] [--clients K] [--json]

Clients take lognormal seconds around means of their own (median 8 s, sigma 0.7, within a client
0.2), which `latency=simulated(...)` takes from their replies; 25 train in a round. Random selection
and Pace take turns, round by round. Prints the rank correlation of learned and true latencies, at
least 0.9, and the virtual rounds after round 20 against random's, at most 0.5. Needs
`pip install 'bsfl[flower]' 'flwr[simulation]'`.
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

N_CLIENTS, COHORT, ROUNDS, WARM_UP = 500, 25, 60, 20
MEDIAN_S, SPREAD, NOISE = 8.0, 0.7, 0.2
ARMS = ("random", "pace")


def true_seconds(n_clients):
    """Return the median latency of every client."""
    return MEDIAN_S * np.exp(SPREAD * np.random.default_rng(0).normal(size=n_clients))


def client_app(n_clients):
    """Return clients that train nothing and report how long they would have taken."""
    from flwr.app import Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app, medians = ClientApp(), true_seconds(n_clients)

    @app.train()
    def train(message, context):
        k = int(context.node_config["partition-id"])
        noise = np.random.default_rng([k, time.time_ns()]).normal()
        metrics = MetricRecord(
            {
                "num-examples": 1,
                "place": k,
                "duration-s": float(medians[k] * np.exp(NOISE * noise)),
            }
        )
        content = {"arrays": message.content["arrays"], "metrics": metrics}
        return Message(RecordDict(content), reply_to=message)

    return app


def server_app(rounds, played, places):
    """Return a server on which the arms take turns."""
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    from bsfl.integrations.flower import Scheduler, Selected, make_policy, simulated

    app = ServerApp()

    def seconds(client, reply):
        metrics = reply.content["metrics"]
        places[client] = metrics["place"]
        return metrics["duration-s"]

    @app.main()
    def main(grid, context):
        arrays = ArrayRecord({"w": Array(np.zeros(100))})
        for name in ARMS:
            played[name] = Selected(
                FedAvg(fraction_evaluate=0.0),
                Scheduler(make_policy(name), cohort_size=COHORT, seed=1),
                latency=simulated(seconds),
            )
        for _ in range(rounds):
            for strategy in played.values():
                strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)

    return app


def measure(rounds, n_clients):
    """Return the strategies of all arms after their rounds, and who has which place."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    os.environ["FLWR_HOME"] = tempfile.mkdtemp()
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    played, places = {}, {}
    run_simulation(
        server_app=server_app(rounds, played, places),
        client_app=client_app(n_clients),
        num_supernodes=n_clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return played, places


def rank_correlation(a, b):
    """Return Spearman's correlation."""
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def learned(scheduler, truth):
    """Return the rank correlation of what is believed of clients and the truth, by their names."""
    posterior = {row["client"]: row["latency_s"] for row in scheduler.table()}
    known = [client for client in truth if posterior.get(client) is not None]
    pairs = ([one[client] for client in known] for one in (posterior, truth))
    return len(known), rank_correlation(*pairs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each arm")
    parser.add_argument("--clients", type=int, default=N_CLIENTS)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    start, cpu = time.perf_counter(), time.process_time()
    played, places = measure(args.rounds, args.clients)
    medians = true_seconds(args.clients)
    truth = {client: medians[place] for client, place in places.items()}
    warm = {
        name: np.mean([one.duration_s for one in strategy.rounds[WARM_UP:]])
        for name, strategy in played.items()
    }
    result = {"machine": machine(), "rounds": args.rounds, "clients": args.clients}
    result |= {f"{name}_s": round(seconds, 2) for name, seconds in warm.items()}
    result["ratio"] = round(warm["pace"] / warm["random"], 3)
    heard = {c: truth[c] for c, one in played["pace"].participation.items() if one.latencies_s}
    result["heard"], correlation = learned(played["pace"].scheduler, heard)
    result["rank_correlation"] = round(correlation, 3)
    result["wall_s"] = round(time.perf_counter() - start)
    result["cpu_s"] = round(time.process_time() - cpu)
    if args.json:
        print(json.dumps(result))
        return
    print(result["machine"])
    print(f"{args.clients} virtual clients, {COHORT} in a round, {args.rounds} rounds of each arm")
    print(f"  random {result['random_s']} s, Pace {result['pace_s']} s a virtual round after 20")
    print(f"  ratio {result['ratio']} (at most 0.5)")
    print(
        f"  rank correlation of learned and true {result['rank_correlation']} (at least 0.9)"
        f", {result['heard']} clients heard"
    )
    print(f"  {result['wall_s']} s, {result['cpu_s']} s of this process")


if __name__ == "__main__":
    main()
