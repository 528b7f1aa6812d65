"""Draw the pictures of docs/concepts/ and print the numbers that stand there: two minutes.

python docs/images/concepts.py [folder]
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

from bsfl import BSFL, CsUcb, Pace, UniformRandom
from bsfl.estimators.fairness import gini
from bsfl.experiments import read_scenario
from bsfl.report.plots import POLICY_LOOKS, Look
from bsfl.simulation import Objective, simulate

mpl.use("agg")
import matplotlib.pyplot as plt

NAMES = {"Pace": "pace", "random": "random", "CS-UCB": "cs-ucb", "BSFL": "bsfl"}
COLOUR = {shown: Look.of(POLICY_LOOKS[name]).colour for shown, name in NAMES.items()}
ROUNDS, M, SEEDS = 500, 10, 5
LATE = 80  # the first of the rounds that are looked at closely


def play(policy, seed, rounds=ROUNDS, scenario="phones", objective=None):
    """Return the fleet and the records of one policy with one seed of a scenario."""
    scenario = read_scenario(scenario)
    fleet = scenario.clients.build(seed)
    records = simulate(
        policy,
        fleet,
        cohort_size=scenario.cohort_size,
        rounds=rounds,
        seed=seed,
        objective=objective,
    )
    return fleet, list(records)


def counts(records, n_clients):
    """Return how often each client was chosen."""
    return np.bincount([k for r in records for k in r.cohort], minlength=n_clients)


def rounds_picture(folder):
    """One round of each: who took how long, and when it was over."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharex=True)
    for axis, (name, policy) in zip(
        axes, {"random": UniformRandom(), "Pace": Pace()}.items(), strict=True
    ):
        fleet, records = play(policy, 0)
        usual = np.median([r.duration_s for r in records[LATE:]])
        record = min(records[LATE:], key=lambda r: abs(r.duration_s - usual))
        took = np.sort(fleet.latencies(record.round, 0.0)[list(record.cohort)])
        axis.barh(range(M), took, color=COLOUR[name], height=0.6)
        axis.barh(range(M), took[-1] - took, left=took, color="#dddddd", height=0.6)
        idle = 1 - took.mean() / took[-1]
        axis.set_title(f"{name}: over after {took[-1]:.0f} s, {idle:.0%} of it waiting")
        axis.set(yticks=[], xlabel="seconds since the invitation")
        print(f"rounds: {name} {took[-1]:.1f} s, waiting {idle:.2f}")
    axes[0].set_ylabel("the ten clients")
    save(figure, folder, "concept-rounds")


def cohorts_picture(folder):
    """Who is in the cohorts of 40 rounds, slow clients on top."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True)
    for axis, (name, policy) in zip(
        axes, {"random": UniformRandom(), "Pace": Pace()}.items(), strict=True
    ):
        fleet, records = play(policy, 0)
        rank = np.empty(fleet.n_clients, dtype=int)
        rank[np.argsort(-fleet.mean_speed(1))] = np.arange(fleet.n_clients)
        seen = records[LATE : LATE + 40]
        x = [i for i, r in enumerate(seen) for _ in r.cohort]
        y = [rank[k] for r in seen for k in r.cohort]
        axis.plot(x, y, "s", ms=3.2, color=COLOUR[name])
        mean = np.mean([r.duration_s for r in seen])
        axis.set_title(f"{name}: a mean round of {mean:.0f} s")
        axis.set(xlabel="40 rounds, one column each")
        n_slow = [sum(rank[k] >= 80 for k in r.cohort) for r in records[LATE:]]
        none = np.mean(np.equal(n_slow, 0))
        print(f"cohorts: {name} mean {mean:.1f} s; none of the slowest fifth {none:.2f}")
    axes[0].set_ylabel("clients, the slowest on top")
    save(figure, folder, "concept-cohorts")


def fairness_picture(folder):
    """What fairness costs: mean round against the least participation ratio."""
    policies = {f"{f:g}": Pace(fairness=f) for f in (0.0, 0.5, 1.0, 2.0, 3.0, 5.0)}
    policies |= {"random": UniformRandom(), "CS-UCB": CsUcb(tau_max=180.0)}
    points = {}
    for name, policy in policies.items():
        values = []
        for seed in range(SEEDS):
            fleet, records = play(policy, seed)
            often = counts(records, fleet.n_clients)
            values.append((records[-1].clock_s / ROUNDS, often.min() / often.mean(), gini(often)))
        points[name] = np.mean(values, axis=0)
        print(f"fairness: {name} round {points[name][0]:.1f} s, least {points[name][1]:.2f}, "
              f"Gini {points[name][2]:.3f}")  # fmt: skip
    figure, axis = plt.subplots(figsize=(6.5, 4))
    line = np.array([points[name] for name in policies if name in points and name[0].isdigit()])
    axis.plot(line[:, 0], line[:, 1], "o-", color=COLOUR["Pace"], label="Pace(fairness=...)")
    for name, (x, y, _) in points.items():
        if name[0].isdigit():
            axis.annotate(name, (x, y), xytext=(6, -11), textcoords="offset points")
        else:
            axis.plot(x, y, "D", color=COLOUR[name], label=name)
    axis.set(xlabel="mean round, seconds", ylabel="least participation ratio")
    axis.legend(frameon=False)
    save(figure, folder, "concept-fairness")


def regret_picture(folder):
    """Regret against rounds: one keeps paying, one stops."""
    rounds, objective = 5000, Objective(alpha=1.0)
    policies = {
        "random": UniformRandom(),
        "CS-UCB": CsUcb(tau_max=1.0),
        "BSFL": BSFL(alpha=1.0, tau_min=0.05),
    }
    figure, axis = plt.subplots(figsize=(6.5, 4))
    for name, policy in policies.items():
        runs = [play(policy, seed, rounds, "regret-iid", objective)[1] for seed in range(SEEDS)]
        total = np.mean([np.cumsum([r.regret for r in run]) for run in runs], axis=0)
        axis.plot(np.arange(1, rounds + 1), total, color=COLOUR[name], label=name)
        print(f"regret: {name} {total[499]:.0f} after 500 rounds, {total[-1]:.0f} after {rounds}")
    axis.set(xlabel="rounds", ylabel="regret so far")
    axis.legend(frameon=False)
    save(figure, folder, "concept-regret")


def save(figure, folder, name):
    """Write a picture, without frames that say nothing."""
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    rounds_picture(place)
    cohorts_picture(place)
    fairness_picture(place)
    regret_picture(place)
