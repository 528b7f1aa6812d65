"""How often the interval of `Scheduler.effect` covers the true effect.

    python benchmarks/effect.py [--runs 1000] [--scenario phones] [--rounds 160] [--jobs 2]

Simulated selection, without training. In every run Pace and random selection alternate in blocks of
ten rounds. The true difference is the mean of as many other runs. Then, for the estimate of random
selection from observed latencies: its mean, its standard deviation and its bias against rounds that
were selected at random, where Pace alternated with random selection and where Pace selected alone.
"""

import argparse
from dataclasses import replace

import numpy as np
from joblib import Parallel, delayed

from bsfl import Alternating, Pace, UniformRandom
from bsfl.estimators.random_rounds import Conditions, Observed, random_round_s
from bsfl.estimators.switchback import Block
from bsfl.experiments import read_scenario
from bsfl.monitoring.effect import effect_of
from bsfl.policy import PolicyWrapper
from bsfl.simulation import simulate
from bsfl.types import OK

BLOCK, WASHOUT = 10, 1


class Recorded(PolicyWrapper):
    """A policy that keeps what was observed of every client."""

    def __init__(self, policy, n_clients):
        super().__init__(policy)
        self.results = [[] for _ in range(n_clients)]

    def observe(self, state, context, report):
        super().observe(state, context, report)
        for client, outcome, latency_s in zip(
            report.clients, report.outcome, report.latency_s, strict=True
        ):
            self.results[client].append(np.log(latency_s) if outcome == OK else np.nan)

    def observed(self):
        logs = [np.array(one) for one in self.results]
        known = [one[~np.isnan(one)] for one in logs]
        return Observed(
            n_responses=np.array([len(one) for one in known]),
            n_misses=np.array([np.isnan(one).sum() for one in logs]),
            n_timed=np.array([len(one) for one in known]),
            log_latency=np.array([one.mean() if len(one) else 0.0 for one in known]),
            spread=np.array([one.var() * len(one) if len(one) else 0.0 for one in known]),
        )


def estimate(policy, scenario, index):
    n, m = scenario.clients.n_clients, scenario.cohort_size
    rounds = Conditions(
        n_available=n, n_invited=m, target_responses=m, deadline_s=scenario.clients.tau_max
    )
    return random_round_s(policy.observed(), rounds, seed=index)


def run(scenario, index):
    """Return the effect of one run, and estimates of random selection, alternating and alone."""
    clients = replace(scenario.simulated_clients(0), seed=10_000 + index)
    n, m = clients.n_clients, scenario.cohort_size
    alternating = Alternating(Pace(), UniformRandom(), block=BLOCK, washout=WASHOUT, seed=index)
    policy, alone = Recorded(alternating, n), Recorded(Pace(), n)
    sums = np.zeros((-(-scenario.rounds // BLOCK), 3))
    for one in simulate(policy, clients, cohort_size=m, rounds=scenario.rounds, seed=index):
        block, place = divmod(one.round - 1, BLOCK)
        if place >= WASHOUT:
            sums[block] += 1, one.duration_s, len(one.kept)
    blocks = [
        Block(
            number=i,
            arm=alternating.arm(i * BLOCK + 1),
            n_rounds=int(n_rounds),
            total_s=total_s,
            n_responses=int(n_responses),
        )
        for i, (n_rounds, total_s, n_responses) in enumerate(sums.tolist())
    ]
    list(simulate(alone, clients, cohort_size=m, rounds=scenario.rounds, seed=index))
    found = effect_of(blocks, ("Pace()", "UniformRandom()"))
    return found, estimate(policy, scenario, index), estimate(alone, scenario, index)


def random_s(scenario, index):
    """Return the mean round of random selection."""
    clients = replace(scenario.simulated_clients(0), seed=90_000 + index)
    m, rounds = scenario.cohort_size, scenario.rounds
    policy = UniformRandom()
    found = simulate(policy, clients, cohort_size=m, rounds=rounds, seed=index)
    return np.mean([one.duration_s for one in found])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--scenario", default="phones")
    parser.add_argument("--rounds", type=int, default=160)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    scenario = read_scenario(given.scenario)
    scenario = scenario.changed(learning=None, objective=None, rounds=given.rounds, time_s=None)
    parallel = Parallel(n_jobs=given.jobs)
    runs = parallel(delayed(run)(scenario, i) for i in range(2 * given.runs))
    truth = parallel(delayed(random_s)(scenario, i) for i in range(min(given.runs, 100)))
    effects, others = runs[: given.runs], runs[given.runs :]
    print(f"{given.scenario}: {given.runs} runs of {given.rounds} rounds")
    for name in ("round_s", "responses_per_s"):
        true = np.mean([getattr(one, name).difference for one, *_ in others])
        found = [getattr(one, name) for one, *_ in effects]
        n_covered = sum(one.low <= true <= one.high for one in found)
        half = np.mean([(one.high - one.low) / 2 for one in found])
        print(f"{name}: true difference {true:.4g}, half interval {half:.3g}, covered {n_covered}")
    true = np.mean(truth)
    for i, name in ((1, "alternating"), (2, "Pace alone")):
        found = np.array([one[i] for one in runs[: given.runs]])
        n_covered = np.count_nonzero((found[:, 1] <= true) & (found[:, 2] >= true))
        print(
            f"random selection, true {true:.4g} s, estimated ({name}) {found[:, 0].mean():.4g} s: "
            f"bias {found[:, 0].mean() / true - 1:+.1%}, standard deviation "
            f"{found[:, 0].std() / true:.1%}, covered {n_covered}"
        )


if __name__ == "__main__":
    main()
