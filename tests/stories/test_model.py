"""Random lives of schedulers against a model of plain dicts and lists (model.py).

After every step everything that a Scheduler shows is what the model says, a copy and a file hold
the same scheduler, and a rejected call has changed no byte of what a save would write.
"""

import copy
import enum
import itertools
import json
import logging
import math
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from itertools import cycle, product
from types import SimpleNamespace

import numpy as np
import pytest
from model import Ended, Model, agree

from bsfl import (
    AFL,
    BSFL,
    AgeBased,
    CsUcb,
    CsUcbQ,
    Discounted,
    F3ast,
    FedCS,
    Lognormal,
    Luo,
    MaxGini,
    MinParticipation,
    Observation,
    Oort,
    Pace,
    Pisces,
    PolicyWrapper,
    RbcsF,
    Refl,
    RoundPlan,
    Scheduler,
    SlidingWindow,
    TiFL,
    UcbCs,
    UCBIndex,
)
from bsfl.errors import BsflError, InvalidInput
from bsfl.estimators.confidence import CONFIDENCE_WIDTHS
from bsfl.estimators.generalization import DEFICITS
from bsfl.estimators.moments import CumulativeMean
from bsfl.monitoring import Journal
from bsfl.policies import POLICIES, make_policy
from bsfl.policies.rbcs_f import MIN_RIDGE
from bsfl.solvers import SOLVERS
from bsfl.types import LATENCY_RANGE

STEPS_SHORT = 200
"""Steps of every registered policy in the ordinary suite."""
STEPS_LONG = 100_000
"""Steps of all policies together in the long form."""
STEPS_OF_A_LIFE = 250

SHORT_S, LONG_S = LATENCY_RANGE
"""The shortest and the longest latency that can be."""

NAMES = [f"c{i:02}" for i in range(16)]
NUMBERS = list(range(-3, 13))
LARGE = [2**70 + i for i in range(8)] + [-(2**100), 5, 6, 7, 2**128 - 1, 0, 1, -1]
HUGE = 10**400
WRONG_IDS = [None, 1.5, True, b"c01", ("c01",), "x" * 1001, 2**128, -(2**128), HUGE, object()]
WRONG_NUMBERS = [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308, 1e13, HUGE, -HUGE, "3", None]
WRONG_NUMBERS += [True, 1j, [1.0], np.array([1.0, 2.0]), Decimal(3), np.float64("nan"), object()]
WRONG_RESPONSES = [*WRONG_NUMBERS, SimpleNamespace(latency_s=-1.0), SimpleNamespace(latency_s="x")]
WRONG_ATTRIBUTES = [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308, 1e16, HUGE, -HUGE, 1j, "x"]
WRONG_FEATURES = [1e13, HUGE, "x", 1j, [1.0], math.inf, -1e308]
WRONG_SIZES = [0, -1, 1.5, "2", HUGE, 10**16, math.nan, True, [2], np.array([1, 2])]
WRONG_OVER_SELECTIONS = [0.5, -1.0, math.nan, math.inf, HUGE, "much", [1.2], True, 1e100, object()]
WRONG_TIMES = [math.nan, math.inf, -math.inf, "x", True, HUGE, [1.0], 1j, object()]
WRONG_ROUNDS = [0, -1, 1.0, True, "1", math.nan, HUGE, [1], object()]
WRONG_GROUPS = [5, "c01", b"c01", 1.5, object(), math.nan]


class Named(str, enum.Enum):  # noqa: UP042 - a StrEnum prints as its value
    """Ids that are str and print as something else."""

    ONE = "c00"
    TWO = "c01"


# --- what policies and callbacks are told ---------------------------------------------------------

CALLS = []
"""What policies were called with since the last step."""
RECORDS = []
"""What callbacks were called with since the last step."""


def keep_record(record):
    RECORDS.append(record)


class Spy(PolicyWrapper):
    """A policy that notes what it is told."""

    def __repr__(self):
        return f"Spy({self.policy!r})"

    def select(self, state, context, rng):
        CALLS.append({"kind": "select", **facts(context)})
        return super().select(state, context, rng)

    def observe(self, state, context, report):
        responses = {}
        for i, client in enumerate(report.clients.tolist()):
            numbers = (report.latency_s[i], report.loss[i], report.samples[i])
            latency_s, loss, samples = (None if x != x else float(x) for x in numbers)
            outcome = ("ok", "timeout", "failed")[report.outcome[i]]
            responses[client] = {
                "outcome": outcome,
                "latency_s": latency_s,
                "loss": loss,
                "samples": samples,
            }
        CALLS.append(
            {
                "kind": "report",
                "round": report.round,
                "staleness": report.staleness,
                "invited": set(report.invited.tolist()),
                "dropped": bool(report.dropped),
                "responses": responses,
            }
        )
        super().observe(state, context, report)

    def close(self, state, context, closed):
        CALLS.append(
            {
                "kind": "closed",
                "round": closed.round,
                "aggregated": set(closed.aggregated.tolist()),
                "late": set(closed.late.tolist()),
                "discarded": bool(closed.discarded),
                "duration_s": closed.duration_s,
            }
        )
        super().close(state, context, closed)


def facts(context):
    """Return what a policy may know when it selects, as lists by dense index."""
    task, pool = context.task, context.pool
    everyone = np.arange(len(task.invitations))
    members = [True] * len(everyone) if pool.members is None else pool.members.tolist()
    return {
        "round": context.round,
        "available": context.available.tolist(),
        "target": context.target_responses,
        "n_invited": context.n_invited,
        "now_s": context.now_s,
        "n_clients": context.n_clients,
        "members": members,
        "rounds": np.broadcast_to(context.rounds(everyone), len(everyone)).tolist(),
        "invitations": task.invitations.tolist(),
        "participations": task.participations.tolist(),
        "dropped": task.dropped.tolist(),
        "served": context.served(everyone).tolist(),
        "fair": task.fair_count.tolist(),
        "last_selected": task.last_selected.tolist(),
        "last_loss": task.last_loss.tolist(),
        "responded": pool.responded.tolist(),
        "missed": pool.missed.tolist(),
        "failures": pool.failed.tolist(),
        "late": pool.late.tolist(),
        "n_timed": pool.n_timed.tolist(),
        "samples": [math.nan] * len(everyone) if pool.samples is None else pool.samples.tolist(),
        "quality": [1.0] * len(everyone) if pool.quality is None else pool.quality.tolist(),
        "features": [[]] * len(everyone) if pool.features is None else pool.features.tolist(),
    }


def expected_facts(model, available, target, now):
    """Return the same from the model, before the round is opened."""
    rows = list(model.clients.values())
    place = {client: i for i, client in enumerate(model.clients)}

    def column(name):
        return [row[name] for row in rows]

    return {
        "round": model.round + 1,
        "available": sorted(place[c] for c in available),
        "target": target,
        "now_s": now,
        "n_clients": len(model.members()),
        "members": column("member"),
        "invitations": column("invitations"),
        "participations": column("participations"),
        "dropped": column("dropped"),
        "served": [row["invitations"] - row["dropped"] for row in rows],
        "fair": column("fair"),
        "last_selected": [row["last_selected"] or 0 for row in rows],
        "last_loss": column("last_loss"),
        "responded": column("responded"),
        "missed": [row["timeouts"] + row["failures"] for row in rows],
        "failures": column("failures"),
        "late": column("late"),
        "n_timed": [len(row["latencies"]) for row in rows],
        "samples": column("samples"),
        "quality": column("quality"),
        "features": column("features"),
    }


# --- policies -------------------------------------------------------------------------------------


def registered():
    """Return every policy of the registry by name, with its example settings."""
    return {name: make_policy(name, **POLICIES[name].example) for name in POLICIES}


def bsfl_variants():
    """Return BSFL with every combination of components; the solvers take turns."""
    indices = [
        *(UCBIndex(confidence_width=width) for width in CONFIDENCE_WIDTHS),
        Lognormal(quantile=0.9),
    ]
    memories = [CumulativeMean(), Discounted(0.9), SlidingWindow(10)]
    weights = [(3.0, name) for name in DEFICITS]
    weights += list(product([MinParticipation(0.6), MaxGini(0.2)], ["equal", "opportunity"]))
    solvers = cycle(["exact", "exhaustive", "exact", *SOLVERS])
    found = {}
    for index, memory, (alpha, deficit) in product(indices, memories, weights):
        solver, tau_max = next(solvers), [None, 20.0][len(found) % 2]
        found[f"{index}-{memory}-{alpha}-{deficit}-{solver}"] = BSFL(
            alpha=alpha,
            generalization=deficit,
            index=index,
            memory=memory,
            solver=solver,
            tau_max=tau_max,
            beta=1 + len(found) % 3,
        )
    return found


def pace_variants():
    """Return Pace with every combination of a few settings."""
    choices = product([None, 0.0, 1.0, 2.0], [0.0, 0.8, 1.0], [None, 20.0])
    return {
        f"pace-{fairness}-{least}-{tau_max}": Pace(
            fairness=fairness, min_participation=least, tau_max=tau_max
        )
        for fairness, least, tau_max in choices
    }


def extreme_variants():
    """Return policies with settings at their limits; most learn or change in every round."""
    most = 1e100
    low = [
        BSFL(alpha=0.0, tau_max=SHORT_S, memory=Discounted(0.0)),
        BSFL(alpha=MaxGini(0.0), memory=SlidingWindow(2)),
        BSFL(index=Lognormal(quantile=0.01), tau_max=SHORT_S, memory=Discounted(0.0)),
        Pace(fairness=0.0, tau_max=SHORT_S),
        CsUcb(tau_max=SHORT_S, exploration=0.0),
        CsUcbQ(tau_max=SHORT_S, beta=0.0, phi=0.0, exploration=0.0),
        RbcsF(tau_max=SHORT_S, latency_weight=0.0, exploration=0.0, ridge=MIN_RIDGE, phi=0.0),
        UcbCs(gamma=1e-9, sigma=0.0),
        FedCS(tau_max=SHORT_S),
        Oort(tau_max=SHORT_S, percentile=0.0, pacer_rounds=1, penalty=0.0, clip=0.0, cut_off=0.0),
        Oort(pacer_step=0.0, pacer_rounds=1, explore=0.0, explore_min=0.0),
        TiFL(tau_max=SHORT_S, rounds=1, tiers=1, interval=1),
        TiFL(tau_max=4.0, rounds=3, tiers=3, interval=1),
        AgeBased(tau_max=SHORT_S),
        AFL(drop=0.0, temperature=0.0, uniform=0.0),
        F3ast(step=0.0),
        Refl(history=0.0, stay=1e-9),
        Luo(tau_max=SHORT_S, speed=0.0, least=1e-300),
        Pisces(penalty=0.0),
    ]
    high = [
        BSFL(alpha=most, beta=10**15, tau_max=LONG_S, memory=Discounted(1.0)),
        BSFL(alpha=MinParticipation(1.0), memory=SlidingWindow(10**15)),
        BSFL(index=Lognormal(quantile=0.999, optimism=most), tau_max=LONG_S),
        Pace(fairness=5.0, min_participation=1.0, tau_max=LONG_S),
        CsUcb(tau_max=LONG_S, exploration=most),
        CsUcbQ(tau_max=LONG_S, beta=1.0, phi=1.0, exploration=most),
        RbcsF(tau_max=LONG_S, latency_weight=most, exploration=most, ridge=most, phi=0.999),
        UcbCs(gamma=1.0 - 1e-9, sigma=most),
        FedCS(tau_max=LONG_S, candidates=1),
        Oort(tau_max=LONG_S, percentile=100.0, penalty=100.0, clip=1.0, cut_off=1.0),
        Oort(pacer_step=100.0, pacer_rounds=10**15, explore=1.0, explore_decay=1.0),
        TiFL(tau_max=LONG_S, rounds=10**15, tiers=1000, interval=10**15),
        AgeBased(tau_max=LONG_S),
        AFL(drop=1.0, temperature=most, uniform=1.0),
        F3ast(step=1.0),
        F3ast(step=0.5),
        Refl(history=1.0, stay=most),
        Luo(tau_max=LONG_S, speed=10.0, least=1.0),
        Pisces(penalty=100.0),
    ]
    return {f"{i}-{policy!r}"[:60]: policy for i, policy in enumerate(low + high)}


def is_indexed(policy):
    """Return whether a policy has settings by dense index, so that no client can be forgotten."""
    names = ("mean_speed", "compute", "transfer")
    return any(isinstance(getattr(policy, name, None), np.ndarray) for name in names)


# --- lives ----------------------------------------------------------------------------------------


class Life:
    """A scheduler and its model, which take the same random steps."""

    def __init__(self, policy, seed, folder, *, copies):
        self.dice = dice = random.Random(seed)
        self.folder, self.copies = folder, copies
        self.counts = Counter()
        self.ids = dice.choice([NAMES, NAMES, NUMBERS, LARGE])
        self.is_spied = dice.random() < 0.6
        self.indexed = is_indexed(policy)
        self.has_clock = dice.random() < 0.6  # else every time is the caller's own
        self.clock_s, self.time_s = 3000.0, 0.0
        self.policy = Spy(policy) if self.is_spied else policy
        m = dice.choice([1, 1, 2, 3, 4])
        deadline_s = dice.choice([None, None, 4.0])
        self.settings = {
            "cohort_size": m,
            "over_selection": dice.choice([1.0, 1.0, 1.3, "auto"]),
            "deadline_s": deadline_s,
            "min_responses": dice.randint(0, m) if deadline_s else 0,
            "late": dice.choice(["apply", "drop"]),
            "max_staleness": dice.choice([None, None, 0, 1, 3]),
            "lifetime_s": dice.choice([None, 4.0, 12.0, 1e6]),
            "max_open_rounds": dice.choice([1, 1, 2, 3, 4]),
            "forget_after": None if self.indexed else dice.choice([None, None, 2, 12]),
        }
        self.clock = lambda: self.clock_s  # a function: copies of the scheduler share it
        self.scheduler = Scheduler(
            self.policy,
            **self.settings,
            seed=dice.choice([0, 7, 2**200]),
            clock=self.clock,
            on_round=keep_record,
        )
        self.model = Model(self.settings, self.policy.needs)
        self.gives_samples = dice.random() < 0.85 or "samples" in self.policy.needs
        self.feature_form = dice.choice([None, None, "rows", "dicts"])
        self.move = "start"
        self.cohorts = []  # what `select` returned
        self.journal = None
        self.expected = []  # calls of the policy

    # --- time, ids, attributes ------------------------------------------------------------------

    def time(self):
        """Return the time, the keyword that a call gets, and whether the caller gave the time."""
        step = self.dice.choice([0.0, 0.0, 0.5, 1.0, 2.5, 7.0])
        if not self.has_clock:
            self.time_s += step
            return self.time_s, {"now_s": self.time_s}, True
        self.clock_s += step
        if self.dice.random() < 0.4:
            return self.clock_s, {"now_s": self.clock_s}, True
        return self.clock_s, {}, False

    def some(self, group, most=None):
        group = list(group)
        n = self.dice.randint(0, min(len(group), most or len(group)))
        return self.dice.sample(group, n)

    def unknown_ids(self):
        return [c for c in self.ids if c not in self.model.clients]

    def attributes(self, clients):
        """Return arguments of `join`, and what the model shall know of each client."""
        n, dice = len(clients), self.dice
        given, known = {}, [{} for _ in clients]
        if self.gives_samples:
            given["samples"] = [dice.choice([1.0, 5, 1e12, 1e-6, 300.0]) for _ in range(n)]
        if dice.random() < 0.3:
            given["quality"] = [dice.choice([1.0, 0.5, 1e-6]) for _ in range(n)]
        if self.feature_form and dice.random() < 0.5:
            rows, columns = self.features(n)
            given["features"] = rows
            for row, values in zip(known, columns, strict=True):
                row["features"] = values
        for name in ("samples", "quality"):
            for row, value in zip(known, given.get(name, [None] * n), strict=True):
                if value is not None:
                    row[name] = float(value)
        return given, known

    def features(self, n):
        """Return features as `join` takes them, and the columns that they become."""
        dice = self.dice
        if self.feature_form == "rows":
            rows = [
                [dice.choice([1.0, -1e12, 0.0, math.nan, 3.5]) for _ in range(2)] for _ in range(n)
            ]
            return dice.choice([rows, np.array(rows)]), [list(map(float, row)) for row in rows]
        rows = [{"ram": dice.choice([2, 4.0, -1e12]), "net": "wifi"} for _ in range(n)]
        if self.model.n_columns:  # the columns are known: net=wifi, ram
            for row in rows:
                row["net"] = dice.choice(["wifi", "5g"])
                for key in ("ram", "net"):
                    if dice.random() < 0.2:
                        del row[key]
        wifi = {"wifi": 1.0, "5g": 0.0, None: math.nan}
        columns = [[wifi[r.get("net")], float(r.get("ram", math.nan))] for r in rows]
        return rows, columns

    def as_collection(self, clients):
        """Return ids in one of the collections that a caller may use, and their order."""
        form = self.dice.choice([list, list, list, tuple, set, dict.fromkeys, iter, self.aliases])
        if form is set:
            # Decision: the order of a set is an accident, so new clients join in sorted order.
            return set(clients), sorted(clients)
        return form(clients), list(clients)

    def aliases(self, clients):
        if self.ids is NAMES:
            return [Named(c) if c in ("c00", "c01") else c for c in clients]
        return [np.int64(c) if -(2**60) < c < 2**60 else c for c in clients]

    # --- steps ----------------------------------------------------------------------------------

    def live(self, steps):
        moves = {
            self.join: 4,
            self.register: 1,
            self.leave: 2,
            self.online: 2,
            self.offline: 1.5,
            self.rename: 1,
            self.forget: 1,
            self.select: 14,
            self.observe: 18,
            self.close: 7,
            self.abandon: 0.7,
            self.set_something: 0.7,
            self.read: 1,
            self.save_and_load: 1,
            self.load_with_other_settings: 0.5,
            self.copy: 0.5,
            self.start_journal: 0.3,
            self.replay: 0.5,
            self.be_wrong: 12,
        }
        self.join()
        for move in self.dice.choices(list(moves), list(moves.values()), k=steps):
            self.expected = []
            for log in (CALLS, RECORDS, self.model.events, self.model.records):
                log.clear()
            self.counts["steps"] += 1
            self.move = move.__name__
            move()
            self.agree_on_calls()
            self.agree()
            if self.counts["steps"] % self.copies == 0:
                self.agree_on_copies()

    def join(self):
        clients = self.some(self.ids, 6)
        given, known = self.attributes(clients)
        collection = self.as_collection(clients)[0] if not given else clients
        order = sorted(clients) if isinstance(collection, set) else clients
        self.scheduler.join(collection, **given)
        self.model.join(order, known)

    def register(self):
        client = self.dice.choice(self.ids)
        given, known = self.attributes([client])
        self.scheduler.register(client, **{name: values[0] for name, values in given.items()})
        self.model.join([client], known)

    def leave(self):
        clients = self.some(self.model.clients, 4)
        if self.dice.random() < 0.1:
            clients = list(self.model.clients)
        self.scheduler.leave(self.as_collection(clients)[0])
        self.model.leave(clients)

    def online(self):
        clients = self.some(self.ids, 6)
        collection, order = self.as_collection(clients)
        self.scheduler.online(collection)
        self.model.join(order)

    def offline(self):
        clients = self.some(self.model.clients, 4)
        self.scheduler.offline(self.as_collection(clients)[0])
        self.model.offline(clients)

    def rename(self):
        if not self.model.clients:
            return
        client, name = self.dice.choice(list(self.model.clients)), self.dice.choice(self.ids)
        agree("rename", self.scheduler.rename(client, name), self.model.rename(client, name))

    def forget(self):
        clients = self.some(self.model.clients, 3)
        if self.dice.random() < 0.2:
            clients = list(self.model.clients)
        if self.indexed:
            if clients:
                self.rejected(lambda: self.scheduler.forget(clients))
            return
        self.scheduler.forget(self.as_collection(clients)[0])
        self.model.forget(clients)

    def select(self):
        dice, model = self.dice, self.model
        named, order, sizes = None, None, {}
        if dice.random() < 0.5:
            ids = self.ids if dice.random() < 0.3 and not self.policy.needs else model.clients
            named, order = self.as_collection(self.some(ids))
        m, over_selection, deadline_s = (
            model.cohort_size,
            model.over_selection,
            model.deadline_s,
        )
        if dice.random() < 0.2:
            m = sizes["cohort_size"] = dice.choice([1, 2, 5, np.int64(3)])
        if dice.random() < 0.2:
            over_selection = dice.choice([1, 1.0, 1.5, "auto", 100.0, np.float64(1.1)])
            sizes["over_selection"] = over_selection
        if dice.random() < 0.1:
            deadline_s = sizes["deadline_s"] = dice.choice([2.0, 3])
        now, when, timed = self.time()
        before = self.bytes()
        try:
            cohort = self.scheduler.select(named, **sizes, **when)
        except InvalidInput as error:
            self.unchanged(before, error)
            CALLS.clear()
            self.agree_on_rejection(error, m, order or [])
            return
        self.counts["rounds"] += 1
        available = model.begin(order, now, timed)
        self.agree_on_facts(available, m, now)
        model.allowed(cohort, available, m, over_selection, self.policy.may_select_fewer)
        agree(
            "cohort",
            [cohort.target_responses, cohort.deadline_s, cohort.opened_s, cohort.pending],
            [m, deadline_s, now, list(cohort)],
        )
        model.open(cohort, available, m, deadline_s, now, timed)
        self.cohorts.append(cohort)
        self.expect_calls()
        may, must = model.to_forget()
        gone = {c for c in model.clients if c not in {r["client"] for r in self.scheduler.table()}}
        if not must <= gone <= may:
            raise Ended(f"forgotten {gone}, allowed {may}, due {must}")
        model.forget(gone)
        self.counts["forgotten after a time"] += len(gone)

    def agree_on_rejection(self, error, m, named):
        """Check that a selection was rejected for a reason."""
        members = {*self.model.members(), *named}
        known = {c for c, row in self.model.clients.items() if not math.isnan(row["samples"])}
        # Decision: a policy that weighs clients by their data may demand all samples or none.
        wants_samples = "samples" in str(error) and not members <= known
        if wants_samples and (known or "samples" in self.policy.needs):
            return
        if len(members) >= m:
            raise Ended(f"select was rejected: {error}")

    def response(self):
        """Return a response, and whether it is possible."""
        dice = self.dice
        if dice.random() < 0.12:
            return dice.choice(WRONG_RESPONSES), False
        latency_s = dice.choice(
            [dice.lognormvariate(1.0, 1.0), SHORT_S, LONG_S, 1.0, 3, np.float64(2)]
        )
        if dice.random() < 0.2:
            return latency_s, True
        outcome = dice.choice(["ok"] * 6 + ["timeout", "failed"])
        return Observation(
            latency_s=None if outcome == "failed" and dice.random() < 0.5 else latency_s,
            outcome=outcome,
            loss=dice.choice([dice.random(), 0.0, -3.0, 1e12, 1e-300, None]),
            samples=dice.choice([1, 300, 10**12, None]),
        ), True

    def observe(self):
        dice, model = self.dice, self.model
        number, named = None, None
        if dice.random() < 0.5 and self.cohorts:
            named = dice.choice([*self.cohorts[-4:], self.cohorts[-1]])
            number = named.round
            if dice.random() < 0.5:
                named = number
        pending = model.in_flight()
        if number is not None and dice.random() < 0.8:
            pending = model.rounds.get(number, {"pending": []})["pending"]
        clients = self.some(pending, dice.choice([1, 3, 20]))
        if dice.random() < 0.2:
            others = [c for c in [*self.ids, "nobody", -77, *WRONG_IDS] if c not in clients]
            clients += [c for c in self.some(others, 3) if c is not True]
        dice.shuffle(clients)
        if self.ids is not LARGE:
            clients = [*self.aliases([c for c in clients if type(c) is type(self.ids[0])])] + [
                c for c in clients if type(c) is not type(self.ids[0])
            ]
        responses, by_round, rejected = {}, {}, {}
        for client in clients:
            response, is_valid = self.response()
            responses[client] = response
            is_id = type(client) is not bool and client in model.clients
            round_of, counts = None, None
            if is_id:
                round_of, counts = model.validate(client, response, number, is_valid)
            if round_of is None:
                rejected[client] = "ignored"
                continue
            plain_id = next(c for c in model.clients if c == client)
            by_round.setdefault(round_of, {})[plain_id] = counts
            if not is_valid or (counts["outcome"] == "failed" and not is_failed(response)):
                rejected[client] = "counts as failed"
        now, when, timed = self.time()
        if dice.random() < 0.2:
            if rejected:
                self.rejected(
                    lambda: self.scheduler.observe(responses, round=named, strict=True, **when)
                )
                return
            found = self.scheduler.observe(responses, round=named, strict=True, **when)
        else:
            found = self.scheduler.observe(responses, round=named, **when)
        agree("rejected", found.keys(), rejected.keys())
        for client, why in found.items():
            if not why.startswith(rejected[client]):
                raise Ended(f"{client!r} is {why!r}, the model says {rejected[client]!r}")
        if not responses and number in model.rounds:
            # Decision: a report of nothing to a round names its cohort to the policy.
            by_round[number] = {}
        model.observe(by_round, now, timed)
        self.counts["responses"] += len(responses)
        self.counts["rejected responses"] += len(rejected)

    def close(self):
        dice, model = self.dice, self.model
        if not self.cohorts:
            return
        cohort = dice.choice([self.cohorts[-1], *self.cohorts[-5:]])
        number = cohort.round
        named = dice.choice([cohort, number])
        if number == model.round and dice.random() < 0.5:
            named = None
        how, aggregated, discard = {}, None, False
        fresh = model.fresh(model.rounds[number]) if number in model.rounds else []
        kind = dice.randrange(4)
        if kind == 1:
            aggregated = self.some(fresh)
            how["aggregated"] = self.as_collection(aggregated)[0]
        elif kind == 2:
            discard = how["discard"] = True
        now, when, timed = self.time()
        if model.close_is_wrong(number, aggregated, discard):
            self.rejected(lambda: self.scheduler.close(named, **how, **when))
            return
        self.scheduler.close(named, **how, **when)
        model.close(number, aggregated, discard, now, timed)
        self.counts["closed"] += 1

    def abandon(self):
        if self.dice.random() < 0.3:
            self.scheduler.abandon()
            self.model.abandon()
            return
        clients = self.some(self.model.clients, 4)
        self.scheduler.abandon(self.as_collection(clients)[0])
        self.model.abandon(clients)

    def set_something(self):
        model = self.model
        what = self.dice.randrange(4)
        if what == 0:
            m = self.dice.randint(max(1, self.settings["min_responses"]), 5)
            self.scheduler.cohort_size = model.cohort_size = m
        elif what == 1:
            value = self.dice.choice([1.0, 1.3, 2, "auto"])
            self.scheduler.over_selection = model.over_selection = value
        elif what == 2:
            model.late = self.dice.choice(["apply", "drop"])
            model.max_staleness = self.dice.choice([None, 0, 2])
            model.lifetime_s = self.dice.choice([None, 5.0, 1e6])
            names = ("late", "max_staleness", "lifetime_s")
            changed = {name: getattr(model, name) for name in names}
            self.scheduler.plan = replace(self.scheduler.plan, **changed)
        else:
            value = self.dice.randint(1, 4)
            self.scheduler.max_open_rounds = model.max_open_rounds = value
            model.prune()

    def read(self):
        """Call what only shows something."""
        before = self.bytes()
        str(self.scheduler), repr(self.scheduler), self.scheduler.summary()
        self.scheduler.diagnostics(), str(self.scheduler.table())
        for client in self.some(self.model.clients, 3):
            str(self.scheduler.explain(client))
        agree("bytes after reading", self.bytes() == before, True)

    # --- copies and files -----------------------------------------------------------------------

    def path(self):
        return self.folder / "state.bsfl"  # whoever writes it removes it

    def bytes(self, scheduler=None):
        """Return everything that a save writes, without who writes the file."""
        path = self.path()
        (scheduler or self.scheduler).save(path)
        content = path.read_bytes()
        path.unlink()
        start = content.index(b'{"schema"')
        header, length = json.JSONDecoder().raw_decode(content[start:].decode("latin-1"))
        del header["owner"]
        return header, content[start + length :]

    def loaded(self, **settings):
        """Return the scheduler from a file of its own."""
        path = self.path()
        self.scheduler.save(path)
        if self.is_spied:
            settings.setdefault("policy", Spy(self.policy.policy))
        loaded = Scheduler.load(path, clock=self.clock, on_round=keep_record, **settings)
        path.unlink()
        return loaded

    def next_cohorts(self, *schedulers):
        """Return the cohorts that copies of schedulers select next, or why they select none."""
        found = []
        when = {} if self.has_clock else {"now_s": self.time_s}
        for scheduler in schedulers:
            try:
                cohort = copy.deepcopy(scheduler).select(**when)
                found.append((list(cohort), cohort.n_invited, cohort.round))
            except InvalidInput as error:
                found.append(str(error))
        return found

    def agree_on_copies(self):
        """Check that a deep copy and a loaded file are the same scheduler."""
        before = self.bytes()
        loaded = self.loaded()
        agree("bytes of a loaded file", self.bytes(loaded) == before, True)
        cohorts = self.next_cohorts(self.scheduler, loaded)
        agree("next cohort", cohorts[1], cohorts[0])
        agree("bytes after a copy has selected", self.bytes() == before, True)
        self.counts["compared copies"] += 1

    def save_and_load(self):
        path = self.path()
        wait = self.dice.random() < 0.7
        self.scheduler.save(path, wait=wait)
        self.scheduler.saved()
        if self.has_clock:
            away_s = self.dice.choice([0.0, 0.0, 1000.0, -500.0])
            self.clock_s += away_s
            self.model.shift(away_s)
        settings = {"policy": Spy(self.policy.policy)} if self.is_spied else {}
        self.scheduler = Scheduler.load(path, clock=self.clock, on_round=keep_record, **settings)
        path.unlink()
        if self.journal is not None:  # the restarted process continues it
            self.scheduler.write_journal(self.new_journal())
        CALLS.clear()

    def load_with_other_settings(self):
        dice, model, settings = self.dice, self.model, {}
        if dice.random() < 0.5:
            settings["cohort_size"] = dice.randint(max(1, self.settings["min_responses"]), 5)
            model.cohort_size = settings["cohort_size"]
        if dice.random() < 0.5:
            settings["over_selection"] = model.over_selection = dice.choice([1.0, 1.4, "auto"])
        if dice.random() < 0.5 and not self.indexed:
            others = [p for p in LONG.values() if not is_indexed(p)]
            other = dice.choice(others)
            self.policy = settings["policy"] = Spy(other) if self.is_spied else other
            model.needs = self.policy.needs
            self.gives_samples |= "samples" in model.needs
        self.scheduler = self.loaded(**settings)
        self.journal = None
        CALLS.clear()
        RECORDS.clear()

    def copy(self):
        other = copy.deepcopy(self.scheduler)
        agree("bytes of a copy", self.bytes(other) == self.bytes(), True)
        # Decision: a copy writes to no journal and calls nobody back until it is asked to.
        other.publish_like(self.scheduler)
        self.scheduler, self.journal = other, None

    def start_journal(self):
        for path in self.folder.glob("journal*"):
            path.unlink()
        self.journal = (self.folder / "journal-start.bsfl", self.folder / "journal")
        self.scheduler.save(self.journal[0])
        self.scheduler.write_journal(self.new_journal())

    def new_journal(self):
        max_bytes = self.dice.choice([5_000, 2**20])
        return Journal(self.journal[1], availability=True, max_bytes=max_bytes, n_kept=1000)

    def replay(self):
        if self.journal is None:
            return
        start, journal = self.journal
        settings = {"policy": Spy(self.policy.policy)} if self.is_spied else {}
        self.scheduler.join([])  # an event of now: rounds are as old as they were at the last one
        other = Scheduler.replay(journal, start=start, clock=self.clock, **settings)
        agree("bytes after a replay", self.bytes(other) == self.bytes(), True)
        agree("replayed table", other.table(), self.scheduler.table())
        agree("replayed rounds", shown_rounds(other), shown_rounds(self.scheduler))
        cohorts = self.next_cohorts(self.scheduler, other)
        agree("next cohort after a replay", cohorts[1], cohorts[0])
        CALLS.clear()
        self.counts["replays"] += 1
        if self.dice.random() < 0.5:
            self.scheduler.save(start)  # the next replay starts in the middle of the journal

    # --- wrong input ----------------------------------------------------------------------------

    def be_wrong(self):
        self.move = name = self.dice.choice(list(MISTAKES))
        call = MISTAKES[name](self)
        if call is not None:
            self.rejected(call)
            self.counts["wrong: " + name] += 1

    def rejected(self, call):
        """Check that a call is rejected by one of our errors, and that nothing happened."""
        before = self.bytes()
        try:
            found = call()
        except BsflError as error:
            self.unchanged(before, error)
        else:
            raise Ended(f"a wrong call returned {found!r}")

    def unchanged(self, before, error):
        if self.bytes() != before:
            raise Ended(f"a rejected call has changed the state: {error}")
        text = str(error)
        if not text or "\n" in text or len(text) >= 1_000:
            raise Ended(f"not a message: {text!r}")
        agree("callbacks after a rejected call", RECORDS, [])
        CALLS.clear()
        self.counts["rejected calls"] += 1

    # --- agreement ------------------------------------------------------------------------------

    def agree(self):
        scheduler, model = self.scheduler, self.model
        agree("round", scheduler.round, model.round)
        agree("clients", scheduler.clients, model.members())
        agree("in_flight", set(scheduler.in_flight), model.in_flight())
        agree("distinct in_flight", len(scheduler.in_flight), len(model.in_flight()))
        agree("pending()", shown_rounds(scheduler), model_rounds(model))
        settings = (scheduler.cohort_size, scheduler.over_selection, scheduler.max_open_rounds)
        agree(
            "settings", settings, (model.cohort_size, model.over_selection, model.max_open_rounds)
        )
        table = scheduler.table()
        for row, client in itertools.zip_longest(table, model.clients):
            self.agree_on_row(row, client)
        if table:
            row = self.dice.choice(table)
            agree("client()", scheduler.client(row["client"]), row)
        self.agree_on_last_round(scheduler.last_round)

    def agree_on_row(self, row, client):
        if row is None or client is None:
            raise Ended(f"table: {row} instead of {client!r}")
        row = dict(row)
        low, middle, high = (row.pop(name) for name in ("low_s", "latency_s", "high_s"))
        agree("row", row, self.model.row(client))
        latencies = self.model.clients[client]["latencies"]
        if not latencies:
            agree(f"latencies of {client!r}", [low, middle, high], [None] * 3)
            return
        # Decision: the median of a lognormal latency is the geometric mean of those observed.
        median = math.exp(sum(map(math.log, latencies)) / len(latencies))
        if not math.isclose(middle, median, rel_tol=1e-4):
            raise Ended(f"median latency of {client!r}: {middle}, the model says {median}")
        if not low <= middle * 1.0001 or not middle <= high * 1.0001:
            raise Ended(f"latencies of {client!r} out of order: {low}, {middle}, {high}")

    def agree_on_last_round(self, record):
        model = self.model
        if model.round == 0:
            agree("last_round", record, None)
            return
        r = model.rounds[model.round]
        self.agree_on_record(record, model.record(r), r["was_cut"])
        agree("is_short", record.is_short, r["n_available"] < r["n_invited"])

    def agree_on_record(self, record, expected, was_cut):
        found = {name: getattr(record, name) for name in expected}
        if was_cut:  # of a forgotten client no latency is known any more
            found.pop("duration_s")
            expected = {name: value for name, value in expected.items() if name != "duration_s"}
        agree("record of a round", found, expected)

    def agree_on_facts(self, available, target, now):
        """Check what the policy knew when it selected."""
        if not self.is_spied:
            return
        # With over-selection "auto" the policy may be asked more than once; the last time counts.
        found = [call for call in CALLS if call["kind"] == "select"][-1]
        expected = expected_facts(self.model, available, target, now)
        for name, value in expected.items():
            agree(f"the policy's {name}", found[name], value)
        rounds = [row["member_rounds"] + 1 for row in self.model.clients.values()]
        for i, row in enumerate(self.model.clients.values()):
            if row["member"]:
                agree("the policy's rounds of a member", found["rounds"][i], rounds[i])

    def expect_calls(self):
        """Note what the policy is to be told, by the dense indices of now."""
        places = {client: i for i, client in enumerate(self.model.clients)}
        for event in self.model.events:
            by_place = dict(event)
            for name in ("invited", "aggregated", "late"):
                if name in event:
                    by_place[name] = {places.get(c) for c in event[name]}
            if "responses" in event:
                by_place["responses"] = {places[c]: o for c, o in event["responses"].items()}
            self.expected.append(by_place)
        self.model.events.clear()

    def agree_on_calls(self):
        """Check what policies and callbacks were told of reports and ends of rounds."""
        agree(
            "callbacks",
            [record.round for record in RECORDS],
            [r["round"] for r, _ in self.model.records],
        )
        for record, (expected, was_cut) in zip(RECORDS, self.model.records, strict=True):
            self.agree_on_record(record, expected, was_cut)
        if not self.is_spied:
            return
        self.expect_calls()
        # Decision: a report of nothing may be passed on to the policy, or not.
        found = [
            call
            for call in CALLS
            if call["kind"] == "closed"
            or (call["kind"] == "report" and (call["responses"] or call["invited"]))
        ]
        agree("number of calls of the policy", len(found), len(self.expected))
        for calls in (found, self.expected):
            calls.sort(key=lambda call: call["round"])
        for call, expected in zip(found, self.expected, strict=True):
            if expected.pop("was_cut", False):
                call.pop("duration_s"), expected.pop("duration_s")
            agree("call of the policy", call, expected)


def is_failed(response):
    return isinstance(response, Observation) and response.outcome == "failed"


def shown_rounds(scheduler):
    return [
        {
            "round": cohort.round,
            "cohort": list(cohort),
            "pending": list(cohort.pending),
            "n_invited": cohort.n_invited,
            "target": cohort.target_responses,
            "deadline_s": cohort.deadline_s,
            "opened_s": cohort.opened_s,
        }
        for cohort in scheduler.pending()
    ]


def model_rounds(model):
    return [
        {
            "round": r["number"],
            "cohort": r["cohort"],
            "pending": r["pending"],
            "n_invited": r["n_invited"],
            "target": r["target"],
            "deadline_s": r["deadline_s"],
            "opened_s": r["opened_s"],
        }
        for r in model.open_rounds()
    ]


# --- mistakes -------------------------------------------------------------------------------------

MISTAKES = {}
"""By name: a function of a life that returns a call which must be rejected; None: not now."""


def mistake(make):
    MISTAKES[make.__name__.replace("_", " ")] = make
    return make


def with_wrong_id(life, clients, ids=WRONG_IDS):
    clients = [*clients, life.dice.choice(ids)]
    life.dice.shuffle(clients)
    return clients


def twice(life, clients):
    clients = list(clients)
    if not clients:
        return None
    clients.append(life.dice.choice(clients))
    life.dice.shuffle(clients)
    return clients


def of_another_type(life):
    return 5 if life.ids is NAMES else "five"


def a_call(life):
    """Return a method that takes ids of clients."""
    one = life.scheduler
    return life.dice.choice([one.join, one.leave, one.online, one.offline, one.forget, one.abandon])


@mistake
def not_a_collection(life):
    group = life.dice.choice(WRONG_GROUPS)
    call = life.dice.choice([a_call(life), life.scheduler.select])
    return lambda: call(group)


@mistake
def no_collection_at_all(life):
    call = a_call(life)
    return None if call == life.scheduler.abandon else lambda: call(None)


@mistake
def an_impossible_id(life):
    clients, call = with_wrong_id(life, life.some(life.model.clients, 3)), a_call(life)
    return lambda: call(clients)


@mistake
def an_impossible_id_among_the_available(life):
    clients = with_wrong_id(life, life.some(life.ids))
    return lambda: life.scheduler.select(clients)


@mistake
def an_id_of_another_type(life):
    if not life.model.clients:
        return None
    wrong = of_another_type(life)
    call = life.dice.choice([a_call(life), life.scheduler.select])
    return lambda: call([*life.some(life.model.clients, 3), wrong])


@mistake
def both_types_of_ids_among_new_clients(life):
    return lambda: life.scheduler.join([*life.unknown_ids()[:1], of_another_type(life), "x", 77])


@mistake
def duplicate_clients(life):
    clients, call = twice(life, life.some(life.model.clients, 3)), a_call(life)
    return clients and (lambda: call(clients))


@mistake
def duplicate_new_clients(life):
    clients = twice(life, life.unknown_ids()[:2])
    call = life.dice.choice([life.scheduler.join, life.scheduler.online])
    return clients and (lambda: call(clients))


@mistake
def duplicate_available_clients(life):
    clients = twice(life, life.some(life.ids))
    return clients and (lambda: life.scheduler.select(clients))


@mistake
def an_unknown_client(life):
    one, unknown = life.scheduler, life.unknown_ids()
    clients = [*life.some(life.model.clients, 2), *unknown[:1]]
    call = life.dice.choice([one.leave, one.offline, one.forget, one.abandon])
    return (lambda: call(clients)) if unknown else None


@mistake
def questions_about_an_unknown_client(life):
    call = life.dice.choice([life.scheduler.client, life.scheduler.explain])
    unknown = life.dice.choice([*life.unknown_ids()[:1], *WRONG_IDS])
    return lambda: call(unknown)


@mistake
def a_wrong_id_registered(life):
    wrong = life.dice.choice(WRONG_IDS)
    return lambda: life.scheduler.register(wrong, samples=3.0)


@mistake
def a_wrong_attribute(life):
    clients = life.some(life.ids, 4) or life.ids[:1]
    name, wrong = life.dice.choice(["samples", "quality"]), life.dice.choice(WRONG_ATTRIBUTES)
    values = [0.5] * len(clients)
    values[life.dice.randrange(len(values))] = wrong
    return lambda: life.scheduler.join(clients, **{name: values})


@mistake
def a_wrong_attribute_registered(life):
    client, name = life.dice.choice(life.ids), life.dice.choice(["samples", "quality"])
    wrong = life.dice.choice(WRONG_ATTRIBUTES)
    return lambda: life.scheduler.register(client, **{name: wrong})


@mistake
def more_attributes_than_clients(life):
    clients = life.some(life.ids, 4)
    name = life.dice.choice(["samples", "quality"])
    values = life.dice.choice([[0.5] * (len(clients) + 1), 0.5, "many", {0: 1.0}])
    return lambda: life.scheduler.join(clients, **{name: values})


@mistake
def wrong_features(life):
    clients = life.some(life.ids, 3) or life.ids[:1]
    rows = [[1.0, 2.0] for _ in clients]
    life.dice.choice(rows)[0] = life.dice.choice(WRONG_FEATURES)
    return lambda: life.scheduler.join(clients, features=rows)


@mistake
def features_of_another_shape(life):
    clients = life.some(life.ids, 3) or life.ids[:1]
    rows = [[1.0, 2.0] for _ in clients]
    shapes = [[*rows, [1.0, 2.0]], 5.0, [[] for _ in clients], [1.0] * len(clients)]
    if len(clients) > 1:
        shapes.append([[1.0], *rows[1:]])
        shapes += [[{"ram": 1.0}, *rows[1:]], [*rows[1:], {"ram": 1.0}]]
    if life.model.n_columns:
        # Decision: columns that have names take no rows without names, and the other way round.
        shapes.append(
            rows if life.feature_form == "dicts" else [{"net": 1.0, "ram": 2.0}] * len(rows)
        )
        shapes.append([[1.0, 2.0, 3.0] for _ in clients])
    wrong = life.dice.choice(shapes)
    return lambda: life.scheduler.join(clients, features=wrong)


@mistake
def wrong_dicts_of_features(life):
    if life.feature_form != "dicts" or not life.model.n_columns:
        return None
    client = life.dice.choice(life.ids)
    wrong = [{"cpu": 1.0}, {"net": 1.0}, {"net": None}, {"ram": math.inf}, {"ram": HUGE}]
    wrong += [{"ram": True}, {1: 1.0}, {"ram": [1.0]}, {"ram": 1e13}, {"ram": "much"}]
    wrong = life.dice.choice(wrong)
    return lambda: life.scheduler.join([client], features=[wrong])


@mistake
def an_unknown_client_renamed(life):
    unknown = life.unknown_ids()
    return (lambda: life.scheduler.rename(unknown[0], life.ids[0])) if unknown else None


@mistake
def a_wrong_name(life):
    if not life.model.clients:
        return None
    client = life.dice.choice(list(life.model.clients))
    name = life.dice.choice([*WRONG_IDS, of_another_type(life)])
    return lambda: life.scheduler.rename(client, name)


@mistake
def a_wrong_cohort_size(life):
    size = life.dice.choice([*WRONG_SIZES, 1000, 10**15])
    named = life.dice.choice([None, life.some(life.ids)])
    return lambda: life.scheduler.select(named, cohort_size=size)


@mistake
def a_wrong_over_selection(life):
    value = life.dice.choice(WRONG_OVER_SELECTIONS)
    named = life.dice.choice([None, life.some(life.ids)])
    return lambda: life.scheduler.select(named, over_selection=value)


@mistake
def a_wrong_deadline(life):
    value = life.dice.choice([0.0, -1.0, math.nan, math.inf, "x", True, HUGE, [1.0]])
    return lambda: life.scheduler.select(life.ids, deadline_s=value)


@mistake
def a_wrong_time(life):
    wrong, one = life.dice.choice(WRONG_TIMES), life.scheduler
    response = dict.fromkeys(life.some(life.model.in_flight(), 2), 1.0)
    calls = [
        lambda: one.select(life.ids, now_s=wrong),
        lambda: one.observe(response, now_s=wrong),
        lambda: one.close(now_s=wrong),
    ]
    return life.dice.choice(calls)


@mistake
def responses_that_are_no_mapping(life):
    wrong = life.dice.choice([*WRONG_GROUPS, None, [1.0], {1.0}, [("c00", 1.0)]])
    return lambda: life.scheduler.observe(wrong)


@mistake
def a_response_of_a_client_that_was_not_selected(life):
    idle = [c for c in life.model.clients if c not in life.model.in_flight()]
    if not idle:
        return None
    responses = dict.fromkeys([*life.some(life.model.in_flight(), 2), life.dice.choice(idle)], 1.0)
    return lambda: life.scheduler.observe(responses, strict=True)


@mistake
def a_response_of_an_unknown_client(life):
    unknown = life.dice.choice([*life.unknown_ids()[:1], *WRONG_IDS])
    responses = {c: 1.0 for c in [unknown, *life.some(life.model.in_flight(), 2)] if c is not True}
    return (lambda: life.scheduler.observe(responses, strict=True)) if unknown != 1 else None


@mistake
def an_impossible_response(life):
    clients = life.some(life.model.in_flight(), 3)
    if not clients:
        return None
    responses = dict.fromkeys(clients, 1.0)
    responses[life.dice.choice(clients)] = life.dice.choice(WRONG_RESPONSES)
    return lambda: life.scheduler.observe(responses, strict=True)


@mistake
def a_response_to_another_round(life):
    model = life.model
    rounds = list(range(1, model.round + 1))
    pairs = [(c, n) for c in model.in_flight() for n in rounds if n not in model.pending_rounds(c)]
    if not pairs:
        return None
    client, number = life.dice.choice(pairs)
    return lambda: life.scheduler.observe({client: 1.0}, round=number, strict=True)


@mistake
def responses_to_an_unknown_round(life):
    number = life.dice.choice([*WRONG_ROUNDS, life.model.round + 1])
    responses = dict.fromkeys(life.some(life.model.in_flight(), 2), 1.0)
    return lambda: life.scheduler.observe(responses, round=number)


@mistake
def an_impossible_observation(life):
    wrong = [{}, {"latency_s": -1.0}, {"latency_s": math.nan}, {"latency_s": HUGE}]
    wrong += [{"latency_s": 1.0, "outcome": "late"}, {"latency_s": 1.0, "outcome": None}]
    wrong += [{"outcome": "timeout"}, {"latency_s": 1.0, "loss": math.nan}]
    wrong += [{"latency_s": 1.0, "loss": 1e13}, {"latency_s": 1.0, "samples": 0}]
    wrong += [{"latency_s": 1.0, "samples": 1.5}, {"latency_s": 1.0, "samples": HUGE}]
    wrong += [{"latency_s": "x"}, {"latency_s": True}, {"latency_s": 1.0, "loss": "low"}]
    wrong = life.dice.choice(wrong)
    return lambda: Observation(**wrong)


@mistake
def an_unknown_round_closed(life):
    number = life.dice.choice([*WRONG_ROUNDS, life.model.round + 1])
    return lambda: life.scheduler.close(number)


@mistake
def no_round_closed(life):
    return life.scheduler.close if life.model.round == 0 else None


@mistake
def aggregated_without_a_response(life):
    if not life.model.rounds:
        return None
    r = life.dice.choice(list(life.model.rounds.values()))
    fresh = life.model.fresh(r)
    others = [c for c in life.model.clients if c not in fresh]
    if not others:
        return None
    clients = [*life.some(fresh), life.dice.choice(others)]
    return lambda: life.scheduler.close(r["number"], aggregated=clients)


@mistake
def aggregated_unknown_or_duplicate_clients(life):
    if not life.model.rounds:
        return None
    r = life.dice.choice(list(life.model.rounds.values()))
    fresh = life.some(life.model.fresh(r))
    wrong = [with_wrong_id(life, fresh), life.dice.choice(WRONG_GROUPS)]
    if fresh:
        wrong.append(twice(life, fresh))
    wrong = life.dice.choice(wrong)
    return lambda: life.scheduler.close(r["number"], aggregated=wrong)


@mistake
def discarded_with_aggregated_clients(life):
    rounds = [r for r in life.model.rounds.values() if life.model.fresh(r)]
    if not rounds:
        return None
    r = life.dice.choice(rounds)
    return lambda: life.scheduler.close(
        r["number"], aggregated=life.model.fresh(r)[:1], discard=True
    )


@mistake
def credit_replaced_twice(life):
    rounds = [r for r in life.model.rounds.values() if r["confirmed"]]
    if not rounds:
        return None
    r = life.dice.choice(rounds)
    how = life.dice.choice([{"discard": True}, {"aggregated": []}])
    return lambda: life.scheduler.close(r["number"], **how)


@mistake
def a_wrong_setting(life):
    name = life.dice.choice(["cohort_size", "max_open_rounds", "over_selection"])
    wrong = WRONG_OVER_SELECTIONS if name == "over_selection" else WRONG_SIZES
    value = life.dice.choice(wrong)
    return lambda: setattr(life.scheduler, name, value)


@mistake
def a_wrong_plan(life):
    wrong = life.dice.choice([5, None, {}, "plan", life.scheduler, RoundPlan])
    return lambda: setattr(life.scheduler, "plan", wrong)


@mistake
def a_wrong_scheduler(life):
    wrong = [{"cohort_size": size} for size in WRONG_SIZES]
    wrong += [{"over_selection": value} for value in WRONG_OVER_SELECTIONS]
    wrong += [{"max_open_rounds": 0}, {"forget_after": 0}, {"forget_after": 1.5}, {"seed": -1}]
    wrong += [{"late": "never"}, {"late": None}, {"lifetime_s": 0.0}, {"lifetime_s": math.nan}]
    wrong += [{"deadline_s": -1.0}, {"deadline_s": 5.0, "lifetime_s": 4.0}, {"min_responses": 1}]
    wrong += [{"deadline_s": 5.0, "min_responses": 3}, {"max_staleness": -1}, {"seed": 1.5}]
    settings = {"cohort_size": 2, **life.dice.choice(wrong)}
    return lambda: Scheduler(**settings)


@mistake
def a_wrong_policy(life):
    wrong = life.dice.choice([3, "pace", Pace, object()])
    calls = [lambda: Scheduler(wrong, cohort_size=2), lambda: life.loaded(policy=wrong)]
    return life.dice.choice(calls)


@mistake
def a_damaged_file(life):
    path = life.folder / "damaged.bsfl"
    life.scheduler.save(path)
    content = bytearray(path.read_bytes())
    path.unlink()
    how = life.dice.randrange(3)
    if how == 0:
        content = content[: life.dice.randrange(len(content))]
    elif how == 1:
        place = life.dice.randrange(len(content))
        content[place] ^= 1 << life.dice.randrange(8)
    else:
        content += b"more"
    path.write_bytes(content)

    def load():
        try:
            return Scheduler.load(path)
        except InvalidInput as error:
            raise Ended(f"not an error of a file: {error!r}") from error
        finally:
            path.unlink()

    return load


@mistake
def a_file_loaded_with_wrong_settings(life):
    settings = [{"cohort_size": size} for size in WRONG_SIZES]
    settings += [{"over_selection": value} for value in WRONG_OVER_SELECTIONS]
    settings = life.dice.choice(settings)
    return lambda: life.loaded(**settings)


@mistake
def clients_that_cannot_be_iterated(life):
    def broken():
        yield from life.some(life.ids, 2)
        raise InvalidInput("the caller's own generator failed")

    call = life.dice.choice([a_call(life), life.scheduler.select])
    return lambda: call(broken())


# --- tests ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_log_of_rejected_responses():
    logger = logging.getLogger("bsfl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


def live(policies, steps, folder, *, copies=1, first_seed=0):
    """Run so many steps with each policy, in several lives, and return what happened."""
    counts = Counter()
    for number, (name, policy) in enumerate(policies.items()):
        for start in range(0, steps, STEPS_OF_A_LIFE):
            seed = first_seed + number * 1_000 + start // STEPS_OF_A_LIFE
            life = Life(policy, seed, folder, copies=copies)
            try:
                life.live(min(STEPS_OF_A_LIFE, steps - start))
            except BaseException as error:
                error.add_note(
                    f"{name}, seed {seed}, step {life.counts['steps']}: {life.move}, "
                    f"{life.settings}"
                )
                raise
            counts += life.counts
    print(f"{len(policies)} policies:", ", ".join(f"{n:,} {what}" for what, n in counts.items()))
    assert counts["steps"] == len(policies) * steps
    assert counts["rounds"] > 0.04 * counts["steps"]
    return counts


def test_there_are_thirty_kinds_of_mistakes():
    assert len(MISTAKES) >= 30


def test_short_lives_agree_with_the_model(fast_folder):
    some = dict(list(bsfl_variants().items())[::13])
    counts = live(registered() | some, STEPS_SHORT, fast_folder, copies=10)
    assert {name for name in MISTAKES if not counts["wrong: " + name]} == set()


LONG = registered() | extreme_variants() | pace_variants() | bsfl_variants()
PARTS = 20


@pytest.mark.attack
@pytest.mark.parametrize("part", range(PARTS))
def test_long_lives_agree_with_the_model(part, fast_folder):
    chosen = dict(list(LONG.items())[part::PARTS])
    steps = math.ceil(STEPS_LONG / len(LONG))
    live(chosen, steps, fast_folder, copies=3, first_seed=1_000_000 * (1 + part))
