"""Does `bsfl advise` predict what its settings then come to? On fleets that it has not seen.

    python benchmarks/advisor.py [FLEET ...] [--devices capacities.csv] [--rounds 60]

A log is drawn from a fleet by random selection, the advisor sees nothing but the log, and every
setting that it played at full length is then played on the fleet itself.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np

from bsfl import Observation, Scheduler
from bsfl.random import stream
from bsfl.simulation import SimulatedClients
from bsfl.simulation.latency import Flaky, Latencies
from bsfl.simulation.populations import POPULATIONS
from bsfl.studies.advice import Advice, ResponseLog, read_log
from bsfl.studies.advice.trials import Setting, run_setting
from bsfl.studies.advice.warm_start import warm_start
from bsfl.studies.study import Effort

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


def played(truth: Latencies, setting: Setting, deadline_s: float) -> dict[str, float]:
    """Return what a setting comes to on the fleet itself, with new seeds."""
    made = {"latency": truth, "tau_min": 1e-3, "tau_max": deadline_s}
    runs = [
        run_setting(SimulatedClients(**made, seed=1000 + i), setting, ROUNDS) for i in range(SEEDS)
    ]
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}


def first_rounds_s(truth: Latencies, setting: Setting, log: ResponseLog, *, is_warm: bool) -> float:
    """Return the mean of the first 20 rounds of a Scheduler, which knows the log or not."""
    size, due_s = setting.cohort_size, setting.deadline_s
    numbers = {"cohort_size": size, "over_selection": setting.over_selection}
    lasted = []
    for seed in range(SEEDS):
        scheduler = Scheduler(setting.made(), **numbers)
        if is_warm:
            scheduler = warm_start(log, setting.made(), **numbers)
        scheduler.plan = setting.plan()
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
    print(f"| fleet | setting | {' | '.join(columns)} |\n|---|---|{'---:|' * len(columns)}")
    for name in [*args.fleets, *["devices"] * bool(args.devices)]:
        truth, deadline_s = latencies(name, 11, args.devices), DEADLINES[name]
        fleet = SimulatedClients(latency=truth, tau_min=1e-3, tau_max=deadline_s, seed=77)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log.csv")
            write_log(fleet, log, args.rounds)
            advice = Advice(log=log, cohort_size=M, rounds=ROUNDS)
            found = advice.play(Path(folder, "out"), Effort(jobs=args.jobs)).numbers
            known = read_log(log)
        best = found["recommended"]
        worst, by_chance = 0.0, played(truth, Setting(**found["trials"][0]["setting"]), deadline_s)
        saved = ""
        for one in found["trials"]:
            setting, predicted = Setting(**one["setting"]), one["mean_round_s"]["mean"]
            true = played(truth, setting, deadline_s)
            error = predicted / true["mean_round_s"] - 1.0
            shares = one["min_participation"]["mean"], true["min_participation"]
            worst = max(worst, abs(error))
            mark = ""
            if one["setting"] == best["setting"]:
                low, high = (f"{100 * best['saved'][end]:.1f}" for end in ("low", "high"))
                real = 100 * (1 - true["for_as_many_s"] / by_chance["for_as_many_s"])
                saved = f"saves {low} to {high} %, in truth {real:.1f} %"
                mark = " *"
            words = f"{one['code']}, over-selection {setting.over_selection}, "
            words += f"{setting.deadline_s:g} s{mark}"
            times = f"{predicted:.3g} | {true['mean_round_s']:.3g} | {error:+.1%}"
            print(f"| {name} | {words} | {times} | {shares[0]:.2f} | {shares[1]:.2f} |", flush=True)
        print(f"{name}: {len(found['trials'])} settings, largest error {worst:.1%}; {saved}")
        setting = Setting(**best["setting"])
        cold, warm = (first_rounds_s(truth, setting, known, is_warm=x) for x in (False, True))
        print(f"{name}: the first 20 rounds take {cold:.3g} s, after a warm start {warm:.3g} s")


if __name__ == "__main__":
    main()
