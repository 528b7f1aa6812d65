"""Records of the simulator on the virtual clock, with and without training, and regret.

Times are drawn with numpy's exp and log, whose last bit may depend on the processor: compare on the
machine that wrote the fixture, or write it anew there from the same sources.
"""

import hashlib
from pathlib import Path

import numpy as np

from bsfl.experiments import read_scenario
from bsfl.experiments.runner import play
from bsfl.learning.task import Evaluation, Update
from bsfl.policies import make_policy
from bsfl.rounds import BufferPlan
from bsfl.simulation import (
    POPULATIONS,
    Flaky,
    Independent,
    Intervals,
    SimulatedClients,
    Training,
    simulate,
)
from bsfl.types import RoundPlan

N_CLIENTS, COHORT_SIZE, N_ROUNDS = 60, 6, 120
SAMPLES = [20 + 7 * k % 181 for k in range(N_CLIENTS)]

# --- the cases ------------------------------------------------------------------------------------

SILENT_POLICIES = {
    "pace": ("pace", {}),
    "bsfl": ("bsfl", {"alpha": 3.0}),
    "bsfl-lognormal": ("bsfl", {"alpha": 3.0, "index": {"kind": "lognormal"}}),
    "random": ("random", {}),
    "weighted": ("weighted", {}),
    "cs-ucb": ("cs-ucb", {"tau_max": 120.0}),
    "rbcs-f": ("rbcs-f", {"tau_max": 120.0}),
    "fedcs": ("fedcs", {"tau_max": 60.0}),
}
"""Policies that need no losses."""
ONLINE_POLICIES = {name: SILENT_POLICIES[name] for name in ("pace", "bsfl", "random")}
ONLINE_POLICIES["refl"] = ("refl", {})
"""Those whose clients have visits of a length, which REFL alone looks at."""
LOSS_POLICIES = {
    "pace": ("pace", {}),
    "random": ("random", {}),
    "bsfl-loss": ("bsfl", {"alpha": 3.0, "generalization": "loss"}),
    "oort": ("oort", {"tau_max": 120.0}),
    "pisces": ("pisces", {}),
    "power-of-choice": ("power-of-choice", {}),
    "afl": ("afl", {}),
    "luo": ("luo", {"tau_max": 120.0}),
    "ucb-cs": ("ucb-cs", {}),
    "tifl": ("tifl", {"tau_max": 120.0, "rounds": N_ROUNDS}),
    "f3ast": ("f3ast", {}),
}
SYNCHRONOUS = (
    *("plain", "deadline", "quorum"),
    *("invite-1.3-drop", "invite-1.3-apply", "invite-auto"),
)
SCENARIO = Path(__file__).parents[2] / "scenarios" / "regret-iid.toml"
REGRET_ROUNDS, CHECKPOINTS = 20_000, 10


def _cases():
    for policy in SILENT_POLICIES:
        yield f"phones/synchronous/{policy}"
        for plan in (*SYNCHRONOUS, "buffer"):
            yield f"phones-lossy/{plan}/{policy}"
    for policy in ("pace", "random"):
        yield f"phones-lossy/deadline-apply/{policy}"
    for policy in ("pace", "bsfl", "random"):
        for plan in ("deadline", "invite-1.3-drop", "invite-auto", "buffer"):
            yield f"bimodal/{plan}/{policy}"
    for policy in ONLINE_POLICIES:
        for plan in ("deadline", "invite-1.3-apply", "invite-auto", "buffer"):
            yield f"churn/{plan}/{policy}"
    for policy in LOSS_POLICIES:
        for plan in ("plain", "invite-1.3-drop", "invite-1.3-apply", "invite-auto", "buffer"):
            yield f"training/{plan}/{policy}"
    for policy in ("bsfl", "cs-ucb", "random"):
        yield f"regret-iid/{policy}"


CASES = tuple(_cases())


def compute(case):
    """Return the rounds of a run: cohort, kept, n_timeouts, duration_s, clock_s, and losses."""
    place, *plan, label = case.split("/")
    if place == "regret-iid":
        return regret(label)
    trains = place == "training"
    policies = {"training": LOSS_POLICIES, "churn": ONLINE_POLICIES}.get(place, SILENT_POLICIES)
    name, settings = policies[label]
    clients = simulated_clients("phones-lossy" if trains else place)
    run = simulate(
        make_policy(name, **settings),
        clients,
        cohort_size=COHORT_SIZE,
        rounds=N_ROUNDS,
        seed=0,
        plan=make_plan(plan[0], clients.tau_max),
        training=Training(SmallTask(), 0) if trains else None,
    )
    return {"rounds": [shown(record, trains=trains) for record in run]}


def shown(record, *, trains):
    kept = record.cohort if record.kept is None else record.kept
    values = [list(record.cohort), list(kept)]
    values += [record.n_timeouts, record.duration_s, record.clock_s]
    return [*values, record.train_loss, record.test_loss] if trains else values


def regret(label):
    """Return for 10 checkpoints a digest of all cohorts so far, and the regret so far."""
    scenario = read_scenario(SCENARIO)
    clients = scenario.simulated_clients(0)
    policy, objective = scenario.policy(label, clients), scenario.objective
    run = play(scenario, policy, clients, 0, rounds=REGRET_ROUNDS, objective=objective)
    digest, total, found = hashlib.sha256(), 0.0, []
    for t, record in enumerate(run, start=1):
        digest.update((",".join(map(str, record.cohort)) + "\n").encode())
        total += record.regret
        if t % (REGRET_ROUNDS // CHECKPOINTS) == 0:
            found.append({"until": t, "cohorts": digest.hexdigest(), "regret": float(total)})
    return {"rounds": found}


# --- clients, plans and a task ----------------------------------------------------------------------


def simulated_clients(name):
    """Return clients by name.

    phones: phones that can be reached four times of five. phones-lossy: the same, and one in twenty
    responses is lost. bimodal: a tenth of the clients ten times slower, with losses. churn:
    lognormal latencies of clients that come and go on the virtual clock.
    """
    samples = np.array(SAMPLES, dtype=float)
    rng = np.random.default_rng([4711, *name.removesuffix("-lossy").encode()])
    if name == "bimodal":
        latency = Flaky(POPULATIONS["authors-bimodal"](N_CLIENTS, rng), 0.03)
        tau_min, tau_max, availability = 0.05, 1.0, Independent(0.7)
    elif name == "churn":
        latency = POPULATIONS["lognormal"](N_CLIENTS, rng, median=8.0, spread=0.7, sigma=0.3)
        tau_min, tau_max, availability = 0.5, 40.0, visits(rng)
    else:
        latency = POPULATIONS["phones"](N_CLIENTS, rng, samples=samples, jitter=0.3)
        latency = Flaky(latency, 0.05) if name == "phones-lossy" else latency
        tau_min, tau_max, availability = 2.0, 120.0, Independent(0.8)
    return SimulatedClients(
        latency=latency,
        tau_min=tau_min,
        tau_max=tau_max,
        availability=availability,
        seed=3,
        samples=samples,
    )


def visits(rng):
    """Return when clients are online."""
    period_s, start, end, offsets = 7200.0, [], [], [0]
    for _ in range(N_CLIENTS):
        now = float(rng.uniform(0.0, 300.0))
        while (until := now + float(rng.uniform(20.0, 600.0))) < period_s:
            start.append(now)
            end.append(until)
            now = until + float(rng.uniform(10.0, 300.0))
        offsets.append(len(start))
    return Intervals(np.array(start), np.array(end), np.array(offsets), period_s=period_s)


def make_plan(name, deadline_s):
    """Return a plan by name; "plain" leaves it to the simulator."""
    if name == "plain":
        return None
    if name == "buffer":
        return BufferPlan(concurrency=12, buffer=4, deadline_s=deadline_s)
    settings = {
        "synchronous": {"late": "drop"},
        "deadline": {"late": "drop", "deadline_s": 0.5 * deadline_s},
        "deadline-apply": {"late": "apply", "deadline_s": 0.5 * deadline_s},
        "invite-1.3-drop": {"late": "drop", "deadline_s": deadline_s, "over_selection": 1.3},
        "invite-1.3-apply": {"late": "apply", "deadline_s": deadline_s, "over_selection": 1.3},
        "invite-auto": {"late": "drop", "deadline_s": deadline_s, "over_selection": "auto"},
        "quorum": {
            "late": "drop",
            "deadline_s": 0.5 * deadline_s,
            "min_responses": 5,
            "lifetime_s": 3.0 * deadline_s,
        },
    }[name]
    return RoundPlan(target_responses=COHORT_SIZE, **settings)


class SmallTask:
    """A model that says how often each client trained, and nothing else, in plain Python floats.

    A client's loss falls the more often it has trained. No sum depends on BLAS or the processor.
    """

    n_clients = N_CLIENTS
    samples = np.array(SAMPLES)

    def init(self, seed):
        return (0.0,) * N_CLIENTS

    def train(self, params, clients, *, t, seed):
        updates = []
        for k in np.asarray(clients).tolist():
            trained = (*params[:k], params[k] + 1.0, *params[k + 1 :])
            loss = loss_of(params, k, t)
            updates.append(Update(client=k, params=trained, loss=loss, samples=SAMPLES[k]))
        return updates

    def aggregate(self, params, updates, weights):
        if not updates:
            return params
        total = [0.0] * N_CLIENTS
        for update, weight in zip(updates, np.asarray(weights).tolist(), strict=True):
            total = [a + weight * b for a, b in zip(total, update.params, strict=True)]
        return tuple(total)

    def evaluate(self, params):
        return Evaluation(loss=sum(loss_of(params, k, 0) for k in range(N_CLIENTS)) / N_CLIENTS)


def loss_of(params, client, t):
    """Return the loss of a client in a round, by how often it trained."""
    base = 0.5 + (13 * client % 29) / 10.0
    chance = 1.0 + ((7 * client + 13 * t) % 11) / 50.0
    return base * chance / (1.0 + 0.3 * abs(params[client]) * N_CLIENTS / 10.0)
