"""Cohorts of the public Scheduler over 200 rounds, for every policy, with and without spare clients.

The conditions of a round (who is reachable, how long each client takes, what gets lost) are drawn
from [4711, round] alone, for all clients, so that they are the same for every policy.
"""

import numpy as np

from bsfl import Observation, Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import make_policy

# --- the cases ------------------------------------------------------------------------------------

POLICIES = {
    "bsfl": ("bsfl", {"alpha": 3.0}),
    "bsfl-lognormal": ("bsfl", {"index": {"kind": "lognormal"}}),
    "bsfl-bernstein": ("bsfl", {"index": {"kind": "ucb", "confidence_width": "bernstein"}}),
    "bsfl-discounted": ("bsfl", {"memory": {"kind": "discounted", "gamma": 0.9}}),
    "bsfl-windowed": (
        "bsfl",
        {"memory": {"kind": "sliding-window", "window": 6}, "index": {"kind": "lognormal"}},
    ),
    "bsfl-floor": ("bsfl", {"alpha": {"kind": "min-participation", "share": 0.8}}),
    "bsfl-max-gini": ("bsfl", {"alpha": {"kind": "max-gini", "limit": 0.1}}),
    "pace": ("pace", {"min_participation": 0.5}),
    "pace-plain": ("pace", {}),
    "cs-ucb": ("cs-ucb", {"tau_max": 20.0}),
    "cs-ucb-q": ("cs-ucb-q", {"tau_max": 20.0}),
    "random": ("random", {}),
    "weighted": ("weighted", {}),
    "genie": ("genie", {"mean_speed": np.linspace(0.1, 0.9, 40), "alpha": 3.0}),
    "rbcs-f": (
        "rbcs-f",
        {
            "tau_max": 20.0,
            "compute": np.linspace(0.1, 2.0, 40),
            "transfer": np.linspace(3.0, 0.2, 40),
        },
    ),
    "ucb-cs": ("ucb-cs", {}),
    "power-of-choice": ("power-of-choice", {}),
    "fedcs": ("fedcs", {"tau_max": 20.0}),
    "oort": ("oort", {"tau_max": 20.0}),
    "tifl": ("tifl", {"tau_max": 20.0, "rounds": 30}),
    "age": ("age", {"tau_max": 20.0}),
    "afl": ("afl", {}),
    "f3ast": ("f3ast", {}),
    "refl": ("refl", {}),
    "luo": ("luo", {"tau_max": 20.0}),
    "pisces": ("pisces", {}),
}
"""Name of the case: name of the policy, and its settings (the examples of 0.2)."""

INVITES = {"invite-1.0": 1.0, "invite-1.3": 1.3, "invite-auto": "auto"}
CASES = tuple(f"{policy}/{invite}" for policy in POLICIES for invite in INVITES)


def compute(case):
    """Return the cohorts of a case, as sorted numbers of the clients."""
    policy, invite = case.split("/")
    name, settings = POLICIES[policy]
    scheduler = Scheduler(
        make_policy(name, **settings),
        cohort_size=COHORT_SIZE,
        over_selection=INVITES[invite],
        late="drop",
        seed=0,
    )
    return Drive(scheduler, has_spare=invite != "invite-1.0").run()


# --- the conditions -------------------------------------------------------------------------------

SEED = 4711
N_CLIENTS, COHORT_SIZE, N_ROUNDS = 40, 6, 200
TIMEOUT_S = 20.0
LOST, FAILED = 0.04, 0.02
NEWCOMERS, NEWCOMERS_JOIN = range(35, 40), 30
LEAVERS, LEAVE, RETURN = (3, 11, 20), 60, 120
FORGOTTEN, FORGET, REJOIN = 8, 150, 155
LONGEST_DELAY = 2
"""Rounds after which the last late response is reported."""
ABSENCES = {5: (20, 70), 14: (40, 60), 17: (90, 140), 26: (160, 185), 33: (1, 45)}
ABSENCES |= dict.fromkeys(LEAVERS, (LEAVE - LONGEST_DELAY - 1, RETURN))
ABSENCES |= {FORGOTTEN: (FORGET - LONGEST_DELAY - 1, REJOIN)}
"""Clients that are away from one round until before another. A client that leaves, or is forgotten,
is away for long enough before that nothing of it is pending."""
FEW, N_FEW = 75, 4
"""A round with so few available clients, fewer than a cohort."""
SILENT = 90
"""A round in which every response is lost."""


class SimulatedClients:
    """What is true of the clients in every round."""

    def __init__(self):
        rng = np.random.default_rng([SEED, 0])
        self.median_s = np.exp(rng.uniform(np.log(1.0), np.log(10.0), N_CLIENTS))
        self.sigma = rng.uniform(0.1, 0.5, N_CLIENTS)
        self.absent = rng.choice([0.05, 0.15, 0.4], N_CLIENTS, p=[0.4, 0.4, 0.2])
        self.loss = rng.uniform(0.5, 3.0, N_CLIENTS)
        self.samples = [int(n) for n in rng.integers(20, 400, N_CLIENTS)]
        self.quality = [1.0] * N_CLIENTS
        for client in range(0, N_CLIENTS, 4):
            self.quality[client] = round(float(rng.uniform(0.3, 1.0)), 3)


class Conditions:
    """What happens to each client in one round, whether it is invited or not."""

    def __init__(self, clients, t):
        rng = np.random.default_rng([SEED, t])
        absent = rng.random(N_CLIENTS) < clients.absent
        latency = clients.median_s * np.exp(clients.sigma * rng.normal(size=N_CLIENTS))
        loss = clients.loss * (0.2 + 0.8 * np.exp(-t / 60)) * rng.uniform(0.8, 1.2, N_CLIENTS)
        fate, self.delay = rng.random(N_CLIENTS), rng.integers(1, LONGEST_DELAY + 1, N_CLIENTS)
        has_time = rng.random(N_CLIENTS) < 0.5
        for client, (first, until) in ABSENCES.items():
            absent[client] |= first <= t < until
            absent[client] &= t != until
        if t < NEWCOMERS_JOIN:
            absent[list(NEWCOMERS)] = True
        self.available = np.flatnonzero(~absent).tolist()
        self.responses = {}
        for k in range(N_CLIENTS):
            seconds = float(latency[k])
            if fate[k] < LOST or t == SILENT or seconds > TIMEOUT_S:
                seen = Observation(latency_s=TIMEOUT_S, outcome="timeout")
            elif fate[k] < LOST + FAILED:
                seen = Observation(latency_s=seconds if has_time[k] else None, outcome="failed")
            else:
                seen = Observation(
                    latency_s=seconds, loss=float(loss[k]), samples=clients.samples[k]
                )
            self.responses[k] = seen


# --- the driver -----------------------------------------------------------------------------------


class Drive:
    """One scheduler under these conditions; clients are named "c0", "c1", ...

    A round is reported in one call: the first cohort_size that responded; where there are not so
    many, or no client was invited in excess, all of the cohort. What is left of a round comes one
    or two rounds later, after that round's own report. Until then a client is not available.
    """

    def __init__(self, scheduler, *, has_spare):
        self.scheduler, self.has_spare, self.clients = scheduler, has_spare, SimulatedClients()
        self.pending = {}
        """By client: when its response is reported, the round that it is of, and it."""
        self.n_late = 0

    def join(self, clients):
        self.scheduler.join(
            names(clients),
            samples=[self.clients.samples[k] for k in clients],
            quality=[self.clients.quality[k] for k in clients],
        )

    def forget(self, client):
        """Forget a client; return False for a policy that knows clients by their place."""
        try:
            self.scheduler.forget(names([client]))
        except InvalidInput:
            return False
        return True

    def run(self):
        cohorts, can_forget = [], False
        self.join(range(NEWCOMERS.start))
        for t in range(1, N_ROUNDS + 1):
            if t == NEWCOMERS_JOIN:
                self.join(NEWCOMERS)
            if t == LEAVE:
                self.scheduler.leave(names(LEAVERS))
            if t == FORGET:
                can_forget = self.forget(FORGOTTEN)
            if t == REJOIN and can_forget:
                self.join([FORGOTTEN])
            cohorts.append(self.round(t))
        return {"rounds": cohorts, "can_forget": can_forget, "n_late": self.n_late}

    def round(self, t):
        """Run a round and return its cohort, sorted."""
        conditions = Conditions(self.clients, t)
        available = [k for k in conditions.available if k not in self.pending]
        if t == FEW:
            available = available[:N_FEW]
        selected = self.scheduler.select(names(available))
        cohort = sorted(int(name[1:]) for name in selected)
        came = {k: conditions.responses[k] for k in cohort}
        in_time = [k for k in cohort if came[k].outcome == "ok"]
        in_time.sort(key=lambda k: came[k].latency_s)
        if self.has_spare and len(in_time) >= COHORT_SIZE:
            fresh = in_time[:COHORT_SIZE]
        else:
            fresh = in_time + [k for k in cohort if came[k].outcome != "ok"]
        self.report(selected.round, {k: came[k] for k in fresh})
        self.report_late(t)
        for k in (k for k in cohort if k not in fresh):
            self.pending[k] = (t + int(conditions.delay[k]), selected.round, came[k])
        return cohort

    def report_late(self, now):
        """Report what is due after the report of this round, one earlier round after another."""
        due = {k: entry for k, entry in self.pending.items() if entry[0] == now}
        for number in sorted({entry[1] for entry in due.values()}):
            self.report(number, {k: due[k][2] for k in due if due[k][1] == number})
        self.n_late += len(due)
        for k in due:
            del self.pending[k]

    def report(self, number, responses):
        named = {f"c{k}": seen for k, seen in responses.items()}
        assert self.scheduler.observe(named, round=number, strict=True) == {}


def names(clients):
    return [f"c{k}" for k in clients]
