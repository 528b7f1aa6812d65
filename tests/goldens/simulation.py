"""Records of the simulator on the virtual clock, with and without training, and regret.

Times are drawn with numpy's exp and log, whose last bit may depend on the processor: compare on the
machine that wrote the fixture, or write it anew there from the same sources.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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

# --- the adapter: everything that depends on the API ----------------------------------------------


class SmallTask:
    """A model that says how often each client trained, and nothing else, in plain Python floats.

    A client's loss falls the more often it has trained. No sum depends on BLAS or the processor.
    """

    n_clients = N_CLIENTS
    samples = np.array(SAMPLES)

    def init(self, seed: int) -> tuple[float, ...]:
        return (0.0,) * N_CLIENTS

    def train(self, params: Any, clients: Any, *, t: int, seed: int) -> list[Update]:
        return [
            Update(client=k, params=trained(params, k), loss=loss_of(params, k, t), samples=n)
            for k, n in ((k, SAMPLES[k]) for k in np.asarray(clients).tolist())
        ]

    def aggregate(self, params: Any, updates: Sequence[Update], weights: Any) -> Any:
        if not updates:
            return params
        total = [0.0] * N_CLIENTS
        for update, weight in zip(updates, np.asarray(weights).tolist(), strict=True):
            total = [a + weight * b for a, b in zip(total, update.params, strict=True)]
        return tuple(total)

    def evaluate(self, params: Any) -> Evaluation:
        return Evaluation(loss=sum(loss_of(params, k, 0) for k in range(N_CLIENTS)) / N_CLIENTS)


def make_fleet(name: str) -> SimulatedClients:
    """Return a fleet by name.

    phones: phones that can be reached four times of five. phones-lossy: the same, and one in twenty
    responses is lost. bimodal: a tenth of the clients ten times slower, with losses. churn:
    lognormal latencies of clients that come and go on the virtual clock.
    """
    rng = np.random.default_rng([4711, *name.encode()])
    settings: dict[str, Any] = {"seed": 3, "samples": np.array(SAMPLES, dtype=float)}
    if name == "bimodal":
        latency = Flaky(POPULATIONS["authors-bimodal"](N_CLIENTS, rng), 0.03)
        more = {"tau_min": 0.05, "tau_max": DEADLINE_S[name], "availability": Independent(0.7)}
        return SimulatedClients(latency=latency, **more, **settings)
    if name == "churn":
        latency = POPULATIONS["lognormal"](N_CLIENTS, rng, median=8.0, spread=0.7, sigma=0.3)
        start, end, offsets, period_s = visits(rng)
        lives = Intervals(start, end, offsets, period_s=period_s)
        more = {"tau_min": 0.5, "tau_max": DEADLINE_S[name], "availability": lives}
        return SimulatedClients(latency=latency, **more, **settings)
    rng = np.random.default_rng([4711, *b"phones"])
    latency = POPULATIONS["phones"](N_CLIENTS, rng, samples=settings["samples"], jitter=0.3)
    if name == "phones-lossy":
        latency = Flaky(latency, 0.05)
    more = {"tau_min": 2.0, "tau_max": DEADLINE_S[name], "availability": Independent(0.8)}
    return SimulatedClients(latency=latency, **more, **settings)


def make_plan(name: str, deadline_s: float) -> RoundPlan | BufferPlan | None:
    """Return a plan by name; "plain" leaves it to the simulator."""
    m = COHORT_SIZE
    if name == "plain":
        return None
    if name == "synchronous":
        return RoundPlan(target_responses=m, late="drop")
    if name == "buffer":
        return BufferPlan(concurrency=12, buffer=4, deadline_s=deadline_s)
    settings: dict[str, Any] = {
        "deadline": {"late": "drop"},
        "deadline-apply": {"late": "apply"},
        "invite-1.3-drop": {"over_selection": 1.3, "late": "drop"},
        "invite-1.3-apply": {"over_selection": 1.3, "late": "apply"},
        "invite-auto": {"over_selection": "auto", "late": "drop"},
        "quorum": {"min_responses": 5, "lifetime_s": 3.0 * deadline_s, "late": "drop"},
    }[name]
    if name in ("deadline", "deadline-apply", "quorum"):
        deadline_s = 0.5 * deadline_s
    return RoundPlan(target_responses=m, deadline_s=deadline_s, **settings)


def records(
    policy: str, settings: dict[str, Any], fleet: str, plan: str, *, trains: bool
) -> Iterator[Any]:
    """Yield the records of a run."""
    return simulate(
        make_policy(policy, **settings),
        make_fleet(fleet),
        cohort_size=COHORT_SIZE,
        rounds=N_ROUNDS,
        seed=0,
        plan=make_plan(plan, DEADLINE_S[fleet]),
        training=Training(SmallTask(), 0) if trains else None,
    )


def shown(record: Any, *, trains: bool) -> list[Any]:
    """Return what is stored of a record: FIELDS."""
    kept = list(record.cohort) if record.kept is None else list(record.kept)
    values = [list(record.cohort), kept, record.n_timeouts, record.duration_s, record.clock_s]
    return [*values, record.train_loss, record.test_loss] if trains else values


def regret_records(label: str, rounds: int) -> Iterator[tuple[list[int], float]]:
    """Yield the cohort and the regret of every round of a policy of scenarios/regret-iid.toml."""
    scenario = read_scenario(SCENARIO)
    fleet = scenario.simulated_clients(0)
    policy = scenario.policy(label, fleet)
    for record in play(scenario, policy, fleet, 0, rounds=rounds, objective=scenario.objective):
        yield list(record.cohort), record.regret


# --- the cases ------------------------------------------------------------------------------------

FIELDS = "cohort, kept, n_timeouts, duration_s, clock_s; and with training train_loss and test_loss"
DEADLINE_S = {"phones": 120.0, "phones-lossy": 120.0, "bimodal": 1.0, "churn": 40.0}
SCENARIO = Path(__file__).parents[2] / "scenarios" / "regret-iid.toml"
REGRET_POLICIES, REGRET_ROUNDS, CHECKPOINTS = ("bsfl", "cs-ucb", "random"), 20_000, 10

SILENT_POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "pace": ("pace", {}),
    "bsfl": ("bsfl", {"alpha": 3.0}),
    "bsfl-lognormal": ("bsfl", {"alpha": 3.0, "index": {"kind": "lognormal"}}),
    "random": ("random", {}),
    "weighted": ("weighted", {}),
    "cs-ucb": ("cs-ucb", {"tau_max": 120.0}),
    "rbcs-f": ("rbcs-f", {"tau_max": 120.0}),
    "fedcs": ("fedcs", {"tau_max": 60.0}),
}
ONLINE_POLICIES = {name: SILENT_POLICIES[name] for name in ("pace", "bsfl", "random")}
ONLINE_POLICIES["refl"] = ("refl", {})
"""Those that meet clients whose visits have a length, which REFL alone looks at."""
LOSS_POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
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
BARRIER = (
    *("plain", "deadline", "quorum"),
    *("invite-1.3-drop", "invite-1.3-apply", "invite-auto"),
)


def _cases() -> Iterator[str]:
    for policy in SILENT_POLICIES:
        yield f"phones/synchronous/{policy}"
        for plan in (*BARRIER, "buffer"):
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
    for policy in REGRET_POLICIES:
        yield f"regret-iid/{policy}"


CASES = tuple(_cases())


def compute(case: str) -> dict[str, Any]:
    """Return the rounds of a run, each as FIELDS says; of regret, what `regret` says."""
    place, *plan, policy = case.split("/")
    if place == "regret-iid":
        return regret(policy)
    trains = place == "training"
    by_place = {"training": LOSS_POLICIES, "churn": ONLINE_POLICIES}
    known = by_place.get(place, SILENT_POLICIES)[policy]
    fleet = "phones-lossy" if trains else place
    run = records(*known, fleet, plan[0], trains=trains)
    return {"rounds": [shown(record, trains=trains) for record in run]}


def regret(label: str) -> dict[str, Any]:
    """Return for 10 checkpoints a digest of all cohorts so far, and the regret so far."""
    digest, total, found = hashlib.sha256(), 0.0, []
    for t, (cohort, lost) in enumerate(regret_records(label, REGRET_ROUNDS), start=1):
        digest.update((",".join(map(str, cohort)) + "\n").encode())
        total += lost
        if t % (REGRET_ROUNDS // CHECKPOINTS) == 0:
            found.append({"until": t, "cohorts": digest.hexdigest(), "regret": float(total)})
    return {"rounds": found}


def trained(params: Sequence[float], client: int) -> tuple[float, ...]:
    """Return the model after a client trained once more."""
    return (*params[:client], params[client] + 1.0, *params[client + 1 :])


def loss_of(params: Sequence[float], client: int, t: int) -> float:
    """Return the loss of a client in a round, by how often it trained."""
    base = 0.5 + (13 * client % 29) / 10.0
    chance = 1.0 + ((7 * client + 13 * t) % 11) / 50.0
    return base * chance / (1.0 + 0.3 * abs(params[client]) * N_CLIENTS / 10.0)


def visits(rng: np.random.Generator) -> tuple[Any, Any, Any, float]:
    """Return when clients are online: start, end and offsets, and the period in seconds."""
    period_s, start, end, offsets = 7200.0, [], [], [0]
    for _ in range(N_CLIENTS):
        now = float(rng.uniform(0.0, 300.0))
        while (until := now + float(rng.uniform(20.0, 600.0))) < period_s:
            start.append(now)
            end.append(until)
            now = until + float(rng.uniform(10.0, 300.0))
        offsets.append(len(start))
    return np.array(start), np.array(end), np.array(offsets), period_s
