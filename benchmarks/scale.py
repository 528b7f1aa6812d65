"""What a thousand to ten million clients cost.

    python benchmarks/scale.py [--json] [--quick]

For every K: bytes per client, seconds of a warm select and observe of Pace, the default (m = 100),
the same as a ratio to BSFL's in turn up to a million (limit 2), of save and load, and how long
save(wait=False) stops the caller, as a ratio to a selection. Then the exponent x of the growth K^x
of select + observe from 1e4 on (limit 1.05), fitted over medians.

At a million clients with texts as ids, processor time as a ratio to np.argsort of a million floats:
select after 1 % of the clients went online or offline (limit 2), select(available=) with a list
equal to that of the round before (limit 3), and with one that differs in 1 % of the clients.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from clock import machine

from bsfl import BSFL, Pace, Scheduler
from bsfl.policies import Policy

COHORT, ROUNDS, SAVES = 100, 9, 7
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)


def seconds(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def latency_s(client: int) -> float:
    """Return how long a client takes, always."""
    return 1.0 + client * 2654435761 % 2**32 / 2**28


def fleet(policy: Policy, n_clients: int, *, ids: type = int) -> Scheduler:
    """Return a scheduler that has observed every client, as after many rounds."""
    scheduler = Scheduler(policy, cohort_size=COHORT)
    scheduler.join(map(ids, range(n_clients)))
    for _ in range(3):
        one_round(scheduler)
    engine, latency = scheduler._engine, latency_s(np.arange(n_clients))
    moments = scheduler.state.moments if isinstance(policy, Pace) else scheduler.state.memory
    count = 1 + np.arange(n_clients) % 3
    engine.task.invitations[:] = engine.task.participations[:] = count
    engine.pool.responded[:] = engine.pool.n_timed[:] = moments.observed[:] = count
    engine.pool.log_latency[:] = np.log(latency)
    moments.mean[:] = np.log(latency) if isinstance(policy, Pace) else 1.0 / latency
    return scheduler


def one_round(scheduler: Scheduler) -> tuple[float, float]:
    select_s, cohort = seconds(scheduler.select)
    responses = {k: latency_s(int(k)) for k in cohort}
    observe_s, _ = seconds(lambda: scheduler.observe(responses))
    return select_s, observe_s


def over_bsfl(scheduler: Scheduler, n_clients: int) -> float:
    """Return how long a round takes, in turn with one of BSFL."""
    bsfl = fleet(BSFL(alpha=0.5 * n_clients / COHORT, tau_max=60.0), n_clients)
    one_round(bsfl)
    pairs = [(sum(one_round(scheduler)), sum(one_round(bsfl))) for _ in range(ROUNDS)]
    return statistics.median(own / other for own, other in pairs)


def measure(n_clients: int, folder: Path) -> dict:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    join_s, scheduler = seconds(lambda: fleet(Pace(tau_max=60.0), n_clients))
    one_round(scheduler)
    rounds = [one_round(scheduler) for _ in range(ROUNDS)]
    select_s = statistics.median(s for s, _ in rounds)
    observe_s = statistics.median(o for _, o in rounds)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    path = folder / "scale.bsfl"
    stops = []
    for _ in range(SAVES):
        stops.append(seconds(lambda: scheduler.save(path, wait=False))[0])
        scheduler.saved()
    save_s, _ = seconds(lambda: scheduler.save(path))
    size = path.stat().st_size
    load_s, loaded = seconds(lambda: Scheduler.load(path))
    assert loaded.round == scheduler.round
    return {
        "clients": n_clients,
        "join_s": join_s,
        "peak_bytes_per_client": 1024 * memory / n_clients,
        "file_bytes_per_client": size / n_clients,
        "select_s": select_s,
        "observe_s": observe_s,
        "over_bsfl": over_bsfl(scheduler, n_clients) if n_clients <= 10**6 else np.nan,
        "save_s": save_s,
        "save_stops_s": statistics.median(stops),
        "save_stop_over_select": statistics.median(stops) / select_s,
        "load_s": load_s,
    }


def availability(n_clients: int) -> dict:
    """Return what a selection costs as clients come and go."""
    scheduler = fleet(Pace(tau_max=60.0), n_clients, ids=str)
    names, part = scheduler.clients, n_clients // 200
    values = np.random.default_rng(0).random(n_clients)
    parts = [names[at : at + part] for at in range(0, n_clients, part)]
    gone = iter(range(ROUNDS))

    def change_and_select() -> None:
        k = next(gone)
        scheduler.offline(parts[k + 1])
        scheduler.online(parts[k])
        scheduler.select()

    scheduler.offline(parts[0])
    measured = {"1 % online or offline, then select": processor_s(change_and_select)}
    scheduler.select(available=names)
    equal = iter([list(names) for _ in range(ROUNDS)])
    starts = range(0, 2 * ROUNDS * part, 2 * part)
    different = iter([names[:at] + names[at + 2 * part :] for at in starts])
    for name, lists in (("available= an equal list", equal), ("available= 1 % differs", different)):
        measured[name] = processor_s(lambda lists=lists: scheduler.select(available=next(lists)))
    argsort_s = processor_s(lambda: np.argsort(values))
    return {name: took_s / argsort_s for name, took_s in measured.items()}


def processor_s(call) -> float:
    """Return the processor time of a call, the median of several."""
    took = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        took.append(time.process_time() - start)
    return statistics.median(took)


def growth(rows: list[dict]) -> float:
    """Return the fitted exponent of select + observe in K, from 1e4 on."""
    large = [row for row in rows if row["clients"] >= 10**4]
    x = np.log([row["clients"] for row in large])
    y = np.log([row["select_s"] + row["observe_s"] for row in large])
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="up to a million clients")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(n, Path(folder)) for n in (SIZES[:-1] if args.quick else SIZES)]
    result = {"machine": machine(), "rows": rows, "growth": growth(rows), "limit": 1.05}
    result["availability"] = availability(10**6)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    print(result["machine"])
    names = [name for name in rows[0] if name != "clients"]
    print(f"{'clients':>10}", *(f"{name:>22}" for name in names))
    for row in rows:
        print(f"{row['clients']:>10,}", *(f"{row[name]:>22.4g}" for name in names))
    print(f"select + observe grow as K^{result['growth']:.2f} from 1e4 on (limit 1.05)")
    print("a million clients with texts as ids, processor time over np.argsort:")
    for name, ratio in result["availability"].items():
        print(f"  {name:<40}{ratio:6.2f}")


if __name__ == "__main__":
    main()
