"""What fleets of a thousand to ten million clients cost.

    python benchmarks/scale.py [--json] [--quick]

For every K: bytes per client, seconds of a warm select and observe (m = 100), of save and load,
and how long save(wait=False) stops the caller, as a ratio to a selection. Then the exponent x of
the growth K^x of select + observe from 1e4 on (limit 1.05), fitted over interleaved medians.
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

from bsfl import BSFL, Scheduler

COHORT, ROUNDS, SAVES = 100, 9, 7
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)


def seconds(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def fleet(n_clients: int) -> Scheduler:
    """Return a scheduler that has met everyone, as after many rounds."""
    scheduler = Scheduler(BSFL(alpha=0.5 * n_clients / COHORT, tau_max=60.0), cohort_size=COHORT)
    scheduler.join(range(n_clients))
    scheduler.observe(dict.fromkeys(scheduler.select(), 5.0))
    rng, state = np.random.default_rng(0), scheduler._state
    state.selected[:] = state.memory.observed[:] = rng.integers(1, 20, n_clients)
    state.memory.mean[:] = 1.0 / rng.lognormal(2.0, 0.6, n_clients)
    return scheduler


def one_round(scheduler: Scheduler) -> tuple[float, float]:
    select_s, cohort = seconds(scheduler.select)
    answers = {k: 1.0 + k % 17 for k in cohort}
    observe_s, _ = seconds(lambda: scheduler.observe(answers))
    return select_s, observe_s


def measure(n_clients: int, folder: Path) -> dict:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    join_s, scheduler = seconds(lambda: fleet(n_clients))
    one_round(scheduler)
    rounds = [one_round(scheduler) for _ in range(ROUNDS)]
    select_s = statistics.median(s for s, _ in rounds)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    path = folder / "scale.bsfl"
    stops = []
    for _ in range(SAVES):
        stops.append(seconds(lambda: scheduler.save(path, wait=False))[0])
        scheduler.saved()
    save_s, _ = seconds(lambda: scheduler.save(path))
    size = path.stat().st_size
    load_s, loaded = seconds(lambda: Scheduler.load(path))
    assert loaded.t == scheduler.t
    return {
        "clients": n_clients,
        "join_s": join_s,
        "peak_bytes_per_client": 1024 * memory / n_clients,
        "file_bytes_per_client": size / n_clients,
        "select_s": select_s,
        "observe_s": statistics.median(o for _, o in rounds),
        "save_s": save_s,
        "save_stops_s": statistics.median(stops),
        "save_stop_over_select": statistics.median(stops) / select_s,
        "load_s": load_s,
    }


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
    if args.json:
        print(json.dumps(result, indent=2))
        return
    print(result["machine"])
    names = [name for name in rows[0] if name != "clients"]
    print(f"{'clients':>10}", *(f"{name:>22}" for name in names))
    for row in rows:
        print(f"{row['clients']:>10,}", *(f"{row[name]:>22.4g}" for name in names))
    print(f"select + observe grow as K^{result['growth']:.2f} from 1e4 on (limit 1.05)")


if __name__ == "__main__":
    main()
