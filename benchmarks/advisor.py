"""Does `bsfl advise` predict the results of its settings? It is tried on clients it has not seen.

    python benchmarks/advisor.py [FLEET ...] [--devices capacities.csv] [--rounds 60]

A log is drawn from clients by random selection, the advisor sees nothing but the log, and every
setting that it ran at full length is then run with the clients themselves.
"""

import argparse
import csv
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from bsfl import Observation, Scheduler
from bsfl.advisor import ResponseLog, advise, read_log, warm_start
from bsfl.advisor.search import Search
from bsfl.advisor.settings import Setting
from bsfl.experiments import parse_scenario
from bsfl.experiments.statistics import ratio_interval
from bsfl.random import stream
from bsfl.simulation import SimulatedClients
from bsfl.simulation.latency import Flaky, Latencies
from bsfl.simulation.populations import POPULATIONS
from bsfl.types import RoundPlan

K, M, ROUNDS, SEEDS = 200, 20, 500, 3
DEADLINES = {"phones": 120.0, "bimodal": 1.0, "flaky": 60.0, "exponential": 40.0, "devices": 200.0}


def latencies(name: str, seed: int, devices: str) -> Latencies:
    rng = np.random.default_rng(seed)
    if name == "flaky":  # a fifth loses 40 % of its responses, three clients lose all
        lost = np.where(rng.random(K) < 0.2, 0.4, 0.03)
        lost[:3] = 1.0
        return Flaky(POPULATIONS["lognormal"](K, rng, spread=0.6, sigma=0.3), lost)
    if name == "devices":
        return POPULATIONS["trace"](K, rng, path=devices, jitter=0.3)
    known = {"bimodal": "authors-bimodal", "exponential": "shifted-exponential"}
    return POPULATIONS[known.get(name, name)](K, rng)


def write_log(fleet: SimulatedClients, path: Path, n_rounds: int) -> None:
    """Write what random selection shows of a fleet."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("client", "latency_s", "outcome"))
        for t in range(1, n_rounds + 1):
            drawn = fleet.latencies(t, 0.0)
            for k in stream(5, "log", t).choice(K, M, replace=False).tolist():
                came = drawn[k] <= fleet.tau_max
                rows.writerow((f"c{k}", min(drawn[k], fleet.tau_max), "ok" if came else "timeout"))


def true_clients(name: str, devices: str, seed: int) -> SimulatedClients:
    """Return the clients themselves, with new latencies by the seed."""
    latency, deadline_s = latencies(name, 11, devices), DEADLINES[name]
    return SimulatedClients(latency=latency, tau_min=1e-3, tau_max=deadline_s, seed=1000 + seed)


def first_rounds_s(truth: Latencies, setting: Setting, log: ResponseLog, *, is_warm: bool) -> float:
    """Return the mean of the first 20 rounds of a Scheduler, which knows the log or not."""
    size, due_s = setting.cohort_size, setting.deadline_s
    numbers = {"cohort_size": size, "over_selection": setting.over_selection}
    lasted = []
    for seed in range(SEEDS):
        scheduler = Scheduler(setting.made(), **numbers)
        if is_warm:
            scheduler = warm_start(log, setting.made(), **numbers)
        scheduler.plan = RoundPlan(
            target_responses=size,
            over_selection=setting.over_selection,
            deadline_s=due_s,
            late="drop",
        )
        scheduler.join(log.clients)
        fleet = SimulatedClients(
            latency=truth, tau_min=1e-3, tau_max=log.deadline_s, seed=500 + seed
        )
        for t in range(1, 21):
            drawn = fleet.latencies(t, 0.0)
            cohort = scheduler.select(available=log.clients)
            took = sorted((float(drawn[int(k[1:])]), k) for k in cohort)
            lasted.append(min(took[min(size, len(took)) - 1][0], due_s))
            observations = {
                k: Observation(
                    latency_s=min(seconds, due_s), outcome="timeout" if seconds > due_s else "ok"
                )
                for seconds, k in took
            }
            fresh = {k: observations.pop(k) for _, k in took[:size]}
            for report in (fresh, observations):  # the others come when the round is closed
                scheduler.observe(report, round=cohort)
                if scheduler.pending():
                    scheduler.close(cohort)
    return float(np.mean(lasted))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("fleets", nargs="*", default=["phones", "bimodal", "flaky", "exponential"])
    options.add_argument("--devices", default="")
    options.add_argument("--rounds", type=int, default=60)
    options.add_argument("--jobs", type=int, default=-1)
    args = options.parse_args()
    columns = ("predicted (s)", "true (s)", "error", "min participation", "true")
    print(f"| clients | setting | {' | '.join(columns)} |\n|---|---|{'---:|' * len(columns)}")
    for name in [*args.fleets, *["devices"] * bool(args.devices)]:
        truth = partial(true_clients, name, args.devices)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "log.csv")
            write_log(truth(77 - 1000), file, args.rounds)
            log = read_log(file)
            found = advise(log, folder, cohort_size=M, rounds=ROUNDS, jobs=args.jobs)
            table = {"title": name, "clients": truth, "rounds": ROUNDS, "cohort_size": M}
            search = Search(
                scenario=parse_scenario(table, name=name, file=name),
                folder=Path(folder, "true"),
                jobs=args.jobs,
            )
            settings = [one.setting for one in found.trials]
            true = search.trials("", settings, rounds=ROUNDS, n_seeds=SEEDS)
        by_key = {one.setting.key: one for one in true}
        errors = []
        for one in found.trials:
            setting, other = one.setting, by_key[one.setting.key]
            numbers = [x.mean(key) for key in ("time_s", "min_participation") for x in (one, other)]
            errors.append(numbers[0] / numbers[1] - 1.0)
            words = f"{setting.words()}, over-selection {setting.over_selection}, "
            words += f"{setting.deadline_s:g} s" + " *" * (one is found.best)
            times = f"{numbers[0]:.3g} | {numbers[1]:.3g} | {errors[-1]:+.1%}"
            print(
                f"| {name} | {words} | {times} | {numbers[2]:.2f} | {numbers[3]:.2f} |", flush=True
            )
        best, baseline = by_key[found.best.setting.key], by_key[found.trials[0].setting.key]
        ratio = ratio_interval(found.best.time_ratio(found.trials[0]))
        real = best.mean("time_s") / baseline.mean("time_s")
        print(
            f"{name}: {len(errors)} settings, largest error {max(map(abs, errors)):.1%}; saves "
            f"{1 - ratio.high:.1%} to {1 - ratio.low:.1%}, in truth {1 - real:.1%}"
        )
        setting, latency = found.best.setting, truth(0).latency
        cold, warm = (first_rounds_s(latency, setting, log, is_warm=x) for x in (False, True))
        print(f"{name}: the first 20 rounds take {cold:.3g} s, after a warm start {warm:.3g} s")


if __name__ == "__main__":
    main()
