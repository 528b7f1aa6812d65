"""Cohorts of the public Scheduler over 200 rounds, for every policy, with and without spare clients.

The conditions of a round (who is reachable, how long each client takes, what gets lost) are drawn
from [4711, round] alone, for all clients, so that they are the same for every policy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bsfl import Observation, Scheduler
from bsfl.errors import InvalidInput
from bsfl.policies import make_policy

# --- the adapter: everything that depends on the API ----------------------------------------------

Response = tuple[float | None, str, float | None, int]
"""Latency in seconds, outcome ("ok", "timeout" or "failed"), loss, samples."""


class Adapter:
    """A scheduler as the driver below sees it; clients are named "c0", "c1", ..."""

    def __init__(
        self, policy: str, settings: dict[str, Any], cohort_size: int, over_selection: float | str
    ) -> None:
        self.scheduler = Scheduler(
            make_policy(policy, **settings),
            cohort_size=cohort_size,
            over_selection=over_selection,
            late="drop",
            seed=0,
        )

    def join(self, clients: Sequence[str], samples: list[int], quality: list[float]) -> None:
        self.scheduler.join(clients, samples=samples, quality=quality)

    def leave(self, clients: Sequence[str]) -> None:
        self.scheduler.leave(clients)

    def forget(self, clients: Sequence[str]) -> bool:
        """Forget clients; return False for a policy that knows clients by their place."""
        try:
            self.scheduler.forget(clients)
        except InvalidInput:
            return False
        return True

    def select(self, available: Sequence[str]) -> tuple[Any, list[str]]:
        """Start a round; return its token, which `report` takes, and its cohort."""
        cohort = self.scheduler.select(available)
        return cohort.round, list(cohort)

    def report(self, token: Any, responses: dict[str, Response], is_late: bool) -> None:
        """Report what became of invitations of one round.

        Args:
            token: What `select` returned for that round.
            responses: By client, in the order in which they came.
            is_late: Whether the round was over before these came, and another one has begun.
        """
        observations = {}
        for client, (latency_s, outcome, loss, samples) in responses.items():
            if outcome == "ok":
                observations[client] = Observation(latency_s=latency_s, loss=loss, samples=samples)
            else:
                observations[client] = Observation(latency_s=latency_s, outcome=outcome)
        rejected = self.scheduler.observe(observations, round=token, strict=True)
        assert not rejected, rejected


# --- the cases ------------------------------------------------------------------------------------

POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
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

INVITES: dict[str, float | str] = {"invite-1.0": 1.0, "invite-1.3": 1.3, "invite-auto": "auto"}
CASES = tuple(f"{policy}/{invite}" for policy in POLICIES for invite in INVITES)


def compute(case: str) -> dict[str, Any]:
    """Return the cohorts of a case, as sorted numbers of the clients."""
    policy, invite = case.split("/")
    adapter = Adapter(*POLICIES[policy], COHORT_SIZE, INVITES[invite])
    return Drive(adapter, has_spare=invite != "invite-1.0").run()


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
ABSENCES = {
    5: (20, 70),
    14: (40, 60),
    17: (90, 140),
    26: (160, 185),
    33: (1, 45),
    LEAVERS[0]: (LEAVE - LONGEST_DELAY - 1, RETURN),
    LEAVERS[1]: (LEAVE - LONGEST_DELAY - 1, RETURN),
    LEAVERS[2]: (LEAVE - LONGEST_DELAY - 1, RETURN),
    FORGOTTEN: (FORGET - LONGEST_DELAY - 1, REJOIN),
}
"""Clients that are away from one round until before another. Whoever leaves, or is forgotten, is
away for long enough before that nothing of it is pending."""
FEW, N_FEW = 75, 4
"""A round with so few available clients, fewer than a cohort."""
SILENT = 90
"""A round in which every response is lost."""


class SimulatedClients:
    """What is true of the clients in every round."""

    def __init__(self) -> None:
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

    def __init__(self, fleet: SimulatedClients, t: int) -> None:
        rng = np.random.default_rng([SEED, t])
        absent = rng.random(N_CLIENTS) < fleet.absent
        latency = fleet.median_s * np.exp(fleet.sigma * rng.normal(size=N_CLIENTS))
        loss = fleet.loss * (0.2 + 0.8 * np.exp(-t / 60)) * rng.uniform(0.8, 1.2, N_CLIENTS)
        fate, self.delay = rng.random(N_CLIENTS), rng.integers(1, LONGEST_DELAY + 1, N_CLIENTS)
        has_time = rng.random(N_CLIENTS) < 0.5
        for client, (first, until) in ABSENCES.items():
            absent[client] |= first <= t < until
            absent[client] &= t != until
        if t < NEWCOMERS_JOIN:
            absent[list(NEWCOMERS)] = True
        self.available = np.flatnonzero(~absent).tolist()
        self.responses: dict[int, Response] = {}
        for k in range(N_CLIENTS):
            samples, seconds = fleet.samples[k], float(latency[k])
            if fate[k] < LOST or t == SILENT or seconds > TIMEOUT_S:
                self.responses[k] = (TIMEOUT_S, "timeout", None, samples)
            elif fate[k] < LOST + FAILED:
                self.responses[k] = (seconds if has_time[k] else None, "failed", None, samples)
            else:
                self.responses[k] = (seconds, "ok", float(loss[k]), samples)


# --- the driver -----------------------------------------------------------------------------------


class Drive:
    """One scheduler under these conditions.

    A round is reported in one call: the first cohort_size that answered; where there are not so
    many, or nobody was invited in excess, all of the cohort. What is left of a round comes one or
    two rounds later, after that round's own report. Until then a client is not available.
    """

    def __init__(self, adapter: Adapter, *, has_spare: bool) -> None:
        self.adapter, self.has_spare, self.fleet = adapter, has_spare, SimulatedClients()
        self.pending: dict[int, tuple[int, int, Any, Response]] = {}
        """By client: when its response is reported, the round that it is of, its token, and it."""
        self.n_late = 0

    def join(self, clients: Sequence[int]) -> None:
        self.adapter.join(
            names(clients),
            [self.fleet.samples[k] for k in clients],
            [self.fleet.quality[k] for k in clients],
        )

    def run(self) -> dict[str, Any]:
        cohorts, can_forget = [], False
        self.join(range(NEWCOMERS.start))
        for t in range(1, N_ROUNDS + 1):
            if t == NEWCOMERS_JOIN:
                self.join(NEWCOMERS)
            if t == LEAVE:
                assert not self.pending.keys() & set(LEAVERS)
                self.adapter.leave(names(LEAVERS))
            if t == FORGET:
                assert FORGOTTEN not in self.pending
                can_forget = self.adapter.forget(names([FORGOTTEN]))
            if t == REJOIN and can_forget:
                self.join([FORGOTTEN])
            cohorts.append(self.round(t))
        return {"rounds": cohorts, "can_forget": can_forget, "n_late": self.n_late}

    def round(self, t: int) -> list[int]:
        """Play a round and return its cohort, sorted."""
        conditions = Conditions(self.fleet, t)
        available = [k for k in conditions.available if k not in self.pending]
        if t == FEW:
            available = available[:N_FEW]
        token, ids = self.adapter.select(names(available))
        cohort = sorted(int(name[1:]) for name in ids)
        assert set(cohort) <= set(available)
        came = {k: conditions.responses[k] for k in cohort}
        answered = sorted((k for k in cohort if came[k][1] == "ok"), key=lambda k: came[k][0])
        others = [k for k in cohort if came[k][1] != "ok"]
        is_full = self.has_spare and len(answered) >= COHORT_SIZE
        fresh = answered[:COHORT_SIZE] if is_full else answered + others
        self.report(token, {k: came[k] for k in fresh}, is_late=False)
        self.report_late(t)
        for k in cohort:
            if k not in fresh:
                self.pending[k] = (t + int(conditions.delay[k]), t, token, came[k])
        return cohort

    def report_late(self, now: int) -> None:
        """Report what is due after the report of this round, one earlier round after another."""
        due = {k: entry for k, entry in self.pending.items() if entry[0] == now}
        for t in sorted({entry[1] for entry in due.values()}):
            batch = {k: entry for k, entry in due.items() if entry[1] == t}
            token = next(iter(batch.values()))[2]
            self.report(token, {k: entry[3] for k, entry in batch.items()}, is_late=True)
            self.n_late += len(batch)
        for k in due:
            del self.pending[k]

    def report(self, token: Any, responses: dict[int, Response], *, is_late: bool) -> None:
        self.adapter.report(token, {f"c{k}": it for k, it in responses.items()}, is_late)


def names(clients: Sequence[int]) -> list[str]:
    return [f"c{k}" for k in clients]
