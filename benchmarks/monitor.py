"""What a journal and metrics add to a round of 100,000 clients (limit 5 %).

    python benchmarks/monitor.py [--json] [--rounds N] [--page MB]

Rounds of a plain scheduler, one with a journal, and one with a journal and Prometheus metrics (if
prometheus_client is there) are played in turn, m = 100, each timed with process_time. `ratio` is
the median of ratios to the plain round next to it, which on a busy machine moves by some per cent;
`own` is the time of publishing alone over that of a plain round, which is steady.

With --page the live page is measured instead, on a journal of this many MB with 100,000 clients:
processor seconds until it shows something, until everything was read, of drawing all of it, and of
a view of a page that has not changed.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
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
        batch.commit(seq, time.time(), clock_s=0.0, shift_s=0.0)
        batch.publish()
        times.append(time.process_time() - start)
        seq += len(events)
    return statistics.median(times)


def write_journal(path: Path, size: int) -> None:
    """Write rounds of 100 clients each, with latencies that differ between clients."""
    rng, now, number = np.random.default_rng(0), 1e9, 0
    median = np.exp(rng.normal(2.0, 0.9, CLIENTS))
    with path.open("w") as file:
        while file.tell() < size:
            number += 1
            rows = rng.choice(CLIENTS, COHORT, replace=False)
            latency_s = (median[rows] * np.exp(rng.normal(0.0, 0.25, COHORT))).tolist()
            clients, common = [f"client-{row}" for row in rows], {"v": 1, "round": number}
            opened = {"invited": clients, "n_available": CLIENTS, "target_responses": COHORT}
            reported = {"clients": clients, "outcome": ["ok"] * COHORT, "latency_s": latency_s}
            closed = {"aggregated": clients, "duration_s": max(latency_s), "diagnostics": {}}
            for kind, fields in (
                ("opened", opened),
                ("responses", reported | {"is_late": False, "dropped": False}),
                ("closed", closed | {"is_discarded": False}),
            ):
                now += 1.0
                entry = {"v": 1, "kind": kind} | common | fields | {"time": now}
                file.write(json.dumps(entry, separators=(",", ":")) + "\n")


def page_seconds(path: Path) -> dict[str, float]:
    """Return the processor seconds of opening, reading, drawing and viewing the live page."""
    from bsfl.dashboard.live import draw
    from bsfl.dashboard.watch import Watched

    found, start = {}, time.process_time()

    def lap(name: str, n: int = 1) -> None:
        nonlocal start
        found[name] = (time.process_time() - start) / n
        start = time.process_time()

    watched = Watched(path)
    watched.parts()
    lap("opened_s")
    while watched.follower.part_read < 1.0:
        watched.follower.catch_up()
    lap("read_s")
    draw(watched.follower.shown.sums, None, None)
    lap("drawn_s")
    parts = watched.parts()
    start = time.process_time()
    have = ",".join(f"{name}:{digest}" for name, (digest, _) in parts.items())
    for _ in range(100):
        watched.changed(have)
    lap("viewed_s", 100)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--page", type=int, help="size of a journal in MB")
    args = parser.parse_args()
    if args.page:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rounds.jsonl"
            write_journal(path, args.page * 10**6)
            print(json.dumps({"machine": machine(), "page": page_seconds(path)}, indent=2))
        return
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
