"""What a journal and metrics add to a round of 100,000 clients (limit 5 %).

    python benchmarks/monitor.py [--json] [--rounds N]

Rounds of a plain scheduler, one with a journal, and one with a journal and Prometheus metrics (if
prometheus_client is there) are played in turn, m = 100, each timed with process_time. `ratio` is
the median of ratios to the plain round next to it, which on a busy machine moves by some per cent;
`own` is the time of publishing alone over that of a plain round, which is steady.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from clock import machine
from scale import COHORT, fleet, latency_s

from bsfl import Observation, Pace
from bsfl.monitoring import Journal
from bsfl.monitoring.publisher import Batch, Publisher

CLIENTS, LIMIT = 10**5, 1.05


def one_round(scheduler) -> float:
    """Return the processor seconds of a round; those of the clients are not counted."""
    start = time.process_time()
    cohort = scheduler.select()
    middle = time.process_time()
    responses = {k: Observation(latency_s=latency_s(k), loss=1.0) for k in cohort}
    begin = time.process_time()
    scheduler.observe(responses)
    return time.process_time() - begin + middle - start


def publishers(folder: Path) -> dict[str, Publisher]:
    """Return what is compared, by name."""
    found = {"plain": Publisher(), "plain again": Publisher()}
    found["journal"] = Publisher(Journal(folder / "one.jsonl"))
    try:
        import prometheus_client

        from bsfl.monitoring.prometheus import PrometheusMetrics
    except ModuleNotFoundError:
        return found
    metrics = PrometheusMetrics(registry=prometheus_client.CollectorRegistry())
    found["journal and metrics"] = Publisher(Journal(folder / "two.jsonl"), metrics)
    return found


def own_seconds(scheduler, n: int = 300) -> float:
    """Return the processor seconds of publishing the events of a round, alone."""
    engine, names, events = scheduler._engine, scheduler._ids.names, []
    apply = engine.apply
    engine.apply = lambda event: (events.append(event), apply(event))
    one_round(scheduler)
    engine.apply = apply
    times, seq = [], scheduler._seq
    for _ in range(n):
        start = time.process_time()
        batch = Batch(scheduler._publisher)
        for event in events:
            batch.add(event, engine, names)
        batch.commit(seq, time.time())
        batch.publish()
        times.append(time.process_time() - start)
        seq += len(events)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        schedulers = {}
        for name, publisher in publishers(Path(folder)).items():
            schedulers[name] = fleet(Pace(tau_max=60.0), CLIENTS)
            schedulers[name]._publisher = publisher
        times: dict[str, list[float]] = {name: [] for name in schedulers}
        for _ in range(args.rounds):
            for name, scheduler in schedulers.items():
                times[name].append(one_round(scheduler))
        own_s = {name: own_seconds(one) for name, one in schedulers.items()}
    rows = {}
    plain_s = statistics.median(times["plain"])
    for name, own in times.items():
        ratios = [a / b for a, b in zip(own, times["plain"], strict=True)]
        rows[name] = {"round_s": statistics.median(own), "ratio": statistics.median(ratios)}
        rows[name]["own"] = own_s[name] / plain_s
    result = {"machine": machine(), "clients": CLIENTS, "cohort": COHORT, "rows": rows}
    if args.json:
        print(json.dumps(result | {"limit": LIMIT}, indent=2))
        return
    for name, row in rows.items():
        print(
            f"{name:20} {1e3 * row['round_s']:7.2f} ms a round, ratio {row['ratio']:.3f}, "
            f"own {row['own']:.3f}"
        )
    print(f"limit {LIMIT}")


if __name__ == "__main__":
    main()
