"""Random lives of schedulers against a model of plain dicts and lists (model.py).

After every step everything that a Scheduler shows is what the model says, copies and files hold the
same scheduler, and a rejected call has changed no byte of what a save would write.
"""

import copy
import logging
import math
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
from model import Model, agree

from bsfl import Observation, PolicyWrapper, Scheduler
from bsfl.errors import BsflError, InvalidInput
from bsfl.types import LATENCY_RANGE, ClosedRound, RoundReport
from every_policy import (
    bsfl_variants,
    extreme_variants,
    is_forgettable,
    pace_variants,
    registered,
)
from saved_state import differences, saved_state

STEPS_SHORT = 200
"""Steps of every registered policy in the ordinary suite."""
STEPS_LONG = 100_000
"""Steps of all policies together in the long form."""
STEPS_OF_A_LIFE = 250

NAMES = [f"c{i:02}" for i in range(16)]
NUMBERS = list(range(-3, 13))
LARGE = [2**70 + i for i in range(8)] + [-(2**100), 5, 6, 7, 2**128 - 1, 0, 1, -1]
HUGE = 10**400
ATTRIBUTES = {
    "samples": [1.0, 5, 1e12, 1e-6, 300.0],
    "quality": [1.0, 0.5, 1e-6],
    "features": [[1.0, -1e12], [0.0, math.nan], [3.5, 3.5]],
}
WRONG_IDS = [None, 1.5, b"c01", ("c01",), "x" * 1001, 2**128, -(2**128), HUGE, object()]
WRONG_GROUPS = [5, "c01", b"c01", 1.5, object(), math.nan]
WRONG_NUMBERS = [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308, 1e16, HUGE, -HUGE, 1j, "x"]
WRONG_RESPONSES = [*WRONG_NUMBERS, None, True, [1.0], np.array([1.0, 2.0]), Decimal(3), object()]
WRONG_RESPONSES += [SimpleNamespace(latency_s=-1.0), SimpleNamespace(latency_s="x")]
WRONG_FEATURES = [1e13, HUGE, "x", 1j, [1.0], math.inf, -1e308]
WRONG_SIZES = [0, -1, 1.5, "2", HUGE, 10**16, math.nan, True, [2], np.array([1, 2])]
WRONG_OVER_SELECTIONS = [
    0.5,
    -1.0,
    math.nan,
    math.inf,
    HUGE,
    "x" * 5000,
    [1.2],
    True,
    1e7,
    object(),
]
WRONG_OVER_SELECTIONS += [np.array([1.2, 2.0])]
WRONG_TIMES = [math.nan, math.inf, -math.inf, "x", True, HUGE, [1.0], 1j, object()]
WRONG_ROUNDS = [0, -1, 1.0, True, "1", math.nan, HUGE, [1], object()]


# --- what a scheduler shows ------------------------------------------------------------------------

CALLS = []
"""What the policy was called with since the last step."""
RECORDS = []
"""What the callback was called with since the last step."""


def keep_record(record):
    RECORDS.append(record)


class Spy(PolicyWrapper):
    """A policy that notes what it is called with."""

    def __repr__(self):
        return f"Spy({self.policy!r})"

    def select(self, state, context, rng):
        CALLS.append(facts(context))
        return super().select(state, context, rng)

    def observe(self, state, context, report):
        CALLS.append(report)
        super().observe(state, context, report)

    def close(self, state, context, closed):
        CALLS.append(closed)
        super().close(state, context, closed)


OF_TASK = ("invitations", "participations", "dropped", "fair_count", "last_selected", "last_loss")
OF_POOL = ("responded", "failed", "late")
ATTRIBUTES_UNKNOWN = {"samples": math.nan, "quality": 1.0, "features": [math.nan] * 2}


def facts(context):
    """Return what a policy may know when it selects, as lists by dense index."""
    task, pool, n = context.task, context.pool, len(context.task.invitations)
    members = np.ones(n, dtype=bool) if pool.members is None else pool.members
    known = {name: getattr(pool, name) for name in ATTRIBUTES_UNKNOWN}
    return {
        "round": context.round,
        "available": context.available.tolist(),
        "target": context.target_responses,
        "now_s": context.now_s,
        "n_clients": context.n_clients,
        "member": members.tolist(),
        "rounds": np.broadcast_to(context.rounds(np.arange(n)), n)[members].tolist(),
        "served": context.served(np.arange(n)).tolist(),
        "missed": pool.missed.tolist(),
        "n_timed": pool.n_timed.tolist(),
        **{name: getattr(task, name).tolist() for name in OF_TASK},
        **{name: getattr(pool, name).tolist() for name in OF_POOL},
        **{
            name: [ATTRIBUTES_UNKNOWN[name]] * n if values is None else values.tolist()
            for name, values in known.items()
        },
    }


def expected_facts(model, available, target, now):
    """Return the same from the model, before the round is opened."""
    rows = list(model.clients.values())
    names = ("member", *OF_TASK, *OF_POOL, *ATTRIBUTES_UNKNOWN)
    return {
        "round": model.round + 1,
        "available": model.places(available),
        "target": target,
        "now_s": now,
        "n_clients": len(model.members()),
        "rounds": [row["rounds"] + 1 for row in rows if row["member"]],
        "served": [row["invitations"] - row["dropped"] for row in rows],
        "missed": [row["timeouts"] + row["failed"] for row in rows],
        "n_timed": [len(row["latencies"]) for row in rows],
        **{name: [row[name] for row in rows] for name in names},
    }


SETTINGS = ("cohort_size", "over_selection", "max_open_rounds")


def shown(scheduler):
    """Return what the properties and the table of a Scheduler show, as `Model.shown`."""
    names = ("pending", "n_invited", "target_responses", "deadline_s", "opened_s")
    table = scheduler.table()
    for row in table:
        low_s, middle_s, high_s = row.pop("low_s"), row["latency_s"], row.pop("high_s")
        assert middle_s is None or 0.9999 * low_s <= middle_s <= 1.0001 * high_s
    pending = [
        [one.round, list(one), *[getattr(one, name) for name in names]]
        for one in scheduler.pending()
    ]
    return {
        "round": scheduler.round,
        "clients": scheduler.clients,
        "in_flight": scheduler.in_flight,
        "pending": pending,
        "settings": [getattr(scheduler, name) for name in SETTINGS],
        "table": table,
        "last_round": scheduler.last_round,
    }


# --- lives ----------------------------------------------------------------------------------------


class Life:
    """A scheduler and its model, which take the same random steps."""

    def __init__(self, policy, seed):
        self.dice = dice = random.Random(seed)
        self.counts = Counter()
        self.ids = dice.choice([NAMES, NAMES, NUMBERS, LARGE])
        self.is_spied = dice.random() < 0.6
        self.has_clock = dice.random() < 0.6  # else every time is the caller's own
        self.clock_s, self.time_s = 3000.0, 0.0
        self.policy = Spy(policy) if self.is_spied else policy
        m, deadline_s = dice.choice([1, 1, 2, 3, 4]), dice.choice([None, None, 4.0])
        self.settings = {
            "cohort_size": m,
            "over_selection": dice.choice([1.0, 1.0, 1.3, "auto"]),
            "deadline_s": deadline_s,
            "min_responses": dice.randint(0, m) if deadline_s else 0,
            "late": dice.choice(["apply", "drop"]),
            "max_staleness": dice.choice([None, None, 0, 1, 3]),
            "lifetime_s": dice.choice([None, 4.0, 12.0, 1e6]),
            "max_open_rounds": dice.choice([1, 1, 2, 3, 4]),
            "forget_after": dice.choice([None, None, 2, 12]) if is_forgettable(policy) else None,
        }
        self.clock = lambda: self.clock_s  # a function: copies of the scheduler share it
        hooks = {"clock": self.clock, "on_round": keep_record}
        self.scheduler = Scheduler(
            self.policy, **self.settings, seed=dice.choice([0, 7, 2**200]), **hooks
        )
        self.model = Model(self.settings, self.policy.needs)
        self.move, self.cohorts = "start", []

    def live(self, steps, folder):
        self.folder = folder
        moves = {
            self.join: 5,
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
            self.continue_as_copy: 3,
            self.restart: 1.5,
            self.be_wrong: 12,
        }
        self.join()
        for move in self.dice.choices(list(moves), list(moves.values()), k=steps):
            for log in (CALLS, RECORDS, self.model.calls, self.model.records):
                log.clear()
            self.counts["steps"] += 1
            self.move = move.__name__
            move()
            self.agree()

    def agree(self):
        """Check what the scheduler shows, and what callbacks and the policy were called with."""
        agree(shown(self.scheduler), self.model.shown(), "scheduler")
        agree(RECORDS, self.model.records, "callbacks")
        if self.is_spied:
            # Decision: a report of nothing may be passed on to the policy, or not.
            found = [
                call
                for call in CALLS
                if isinstance(call, ClosedRound)
                or (isinstance(call, RoundReport) and len(call.clients) + len(call.invited))
            ]
            found.sort(key=lambda call: call.round)
            self.model.calls.sort(key=lambda call: call["round"])
            agree(found, self.model.calls, "calls of the policy")
        if self.model.clients:
            client = self.dice.choice(list(self.model.clients))
            row = self.scheduler.client(client)
            assert row == next(r for r in self.scheduler.table() if r["client"] == client)

    # --- random arguments -----------------------------------------------------------------------

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

    def some(self, group, most=20):
        group = list(group)
        return self.dice.sample(group, self.dice.randint(0, min(len(group), most)))

    def new_ids(self):
        return [c for c in self.ids if c not in self.model.clients]

    def collection(self, clients):
        """Return ids in one of the collections that a caller may use, and their order."""
        form = self.dice.choice([list, list, list, tuple, set, dict.fromkeys, iter])
        # Decision: the order of a set is an accident, so new clients join in sorted order.
        return form(clients), sorted(clients) if form is set else clients

    def response(self):
        """Return a response, and whether it is possible."""
        dice = self.dice
        if dice.random() < 0.12:
            return dice.choice(WRONG_RESPONSES), False
        latency_s = dice.choice([dice.lognormvariate(1.0, 1.0), *LATENCY_RANGE, 3, np.float64(2)])
        if dice.random() < 0.2:
            return latency_s, True
        outcome = dice.choice(["ok"] * 6 + ["timeout", "failed"])
        return Observation(
            latency_s=None if outcome == "failed" and dice.random() < 0.5 else latency_s,
            outcome=outcome,
            loss=dice.choice([dice.random(), 0.0, -3.0, 1e12, 1e-300, None]),
            samples=dice.choice([1, 300, 10**12, None]),
        ), True

    # --- steps ----------------------------------------------------------------------------------

    def join(self):
        clients, dice = self.some(self.ids, 6), self.dice
        given = {
            name: [dice.choice(values) for _ in clients]
            for name, values in ATTRIBUTES.items()
            if name == "samples" or dice.random() < 0.3
        }
        known = [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]
        if len(clients) == 1:
            self.scheduler.register(clients[0], **known[0])
        else:
            self.scheduler.join(clients, **given)
        self.model.join(clients, known)

    def online(self):
        collection, order = self.collection(self.some(self.ids, 6))
        self.scheduler.online(collection)
        self.model.join(order)

    def leave(self):
        clients = self.some(self.model.clients, self.dice.choice([4, 4, 20]))
        self.scheduler.leave(self.collection(clients)[0])
        self.model.leave(clients)

    def offline(self):
        clients = self.some(self.model.clients, 4)
        self.scheduler.offline(self.collection(clients)[0])
        self.model.offline(clients)

    def rename(self):
        if self.model.clients:
            client, name = self.dice.choice(list(self.model.clients)), self.dice.choice(self.ids)
            assert self.scheduler.rename(client, name) == self.model.rename(client, name)

    def forget(self):
        clients = self.some(self.model.clients, self.dice.choice([3, 3, 20]))
        if is_forgettable(self.policy):
            self.scheduler.forget(self.collection(clients)[0])
            self.model.forget(clients)
        else:
            self.rejected(lambda: self.scheduler.forget(clients))

    def select(self):
        dice, model, policy = self.dice, self.model, self.policy
        named, order, numbers = None, None, {}
        if dice.random() < 0.5:
            has_new = dice.random() < 0.3 and not policy.needs
            named, order = self.collection(self.some(self.ids if has_new else model.clients))
        if dice.random() < 0.2:
            numbers["cohort_size"] = dice.choice([1, 2, 5, np.int64(3)])
        if dice.random() < 0.2:
            numbers["over_selection"] = dice.choice([1, 1.5, "auto", 100.0, np.float64(1.1)])
        if dice.random() < 0.1:
            numbers["deadline_s"] = dice.choice([2.0, 3])
        m = numbers.get("cohort_size", model.cohort_size)
        deadline_s = numbers.get("deadline_s", model.deadline_s)
        now, when, timed = self.time()
        before = saved_state(self.scheduler)
        try:
            cohort = self.scheduler.select(named, **numbers, **when)
        except InvalidInput as error:
            self.check_rejection(before, error)
            self.check_selection_is_impossible(error, m, order or [])
            return
        available = model.begin(order, now, timed)
        if self.is_spied:
            # With over-selection "auto" the policy may be asked more than once.
            found = [call for call in CALLS if isinstance(call, dict)][-1]
            agree(found, expected_facts(model, available, m, now), "facts")
        over_selection = numbers.get("over_selection", model.over_selection)
        model.check_allowed(cohort, available, m, over_selection, policy.may_select_fewer)
        model.open(cohort, available, m, deadline_s, now, timed)
        expected = {"target_responses": m, "deadline_s": deadline_s, "opened_s": now}
        agree(cohort, {**expected, "pending": list(cohort)}, "cohort")
        self.cohorts.append(cohort)
        self.counts["rounds"] += 1
        (may, must), kept = model.to_forget(), {row["client"] for row in self.scheduler.table()}
        gone = {c for c in model.clients if c not in kept}
        assert must <= gone <= may
        model.forget(gone)

    def check_selection_is_impossible(self, error, m, named):
        members = {*self.model.members(), *named}
        known = {c for c, row in self.model.clients.items() if not math.isnan(row["samples"])}
        # Decision: a policy that weighs clients by their data may demand all samples or none.
        lacks_samples = "samples" in str(error) and not members <= known
        assert len(members) < m or (lacks_samples and (known or "samples" in self.policy.needs))

    def observe(self):
        dice, model = self.dice, self.model
        named, number, pending = None, None, model.in_flight()
        if self.cohorts and dice.random() < 0.5:
            named = dice.choice(self.cohorts[-4:])
            number = named.round
            named = dice.choice([named, number])
            if dice.random() < 0.8:
                pending = model.rounds.get(number, {"pending": []})["pending"]
        clients = self.some(pending, dice.choice([1, 3, 20]))
        if dice.random() < 0.2:
            others = [*self.ids, "nobody", -77, *WRONG_IDS]
            clients += self.some([c for c in others if c not in clients], 3)
        dice.shuffle(clients)
        given = {client: self.response() for client in clients}
        by_round, rejected = model.validate(given, number)
        responses = {client: response for client, (response, _) in given.items()}
        now, when, timed = self.time()
        how = {"round": named, "strict": dice.random() < 0.2, **when}
        if how["strict"] and rejected:
            self.rejected(lambda: self.scheduler.observe(responses, **how))
            return
        found = self.scheduler.observe(responses, **how)
        assert found.keys() == rejected.keys()
        assert all(why.startswith(rejected[client]) for client, why in found.items())
        if not responses and number in model.rounds:
            # Decision: a report of nothing to a round names its cohort to the policy.
            by_round[number] = {}
        model.observe(by_round, now, timed)

    def close(self):
        dice, model = self.dice, self.model
        if not self.cohorts:
            return
        cohort = dice.choice([self.cohorts[-1], *self.cohorts[-5:]])
        number, aggregated, discard = cohort.round, None, dice.random() < 0.25
        fresh = model.fresh(model.rounds[number]) if number in model.rounds else []
        how = {"discard": discard}
        if not discard and dice.random() < 0.3:
            aggregated = self.some(fresh)
            how["aggregated"] = self.collection(aggregated)[0]
        named = dice.choice([cohort, number, None if number == model.round else number])
        now, when, timed = self.time()
        if model.close(number, aggregated, discard, now, timed):
            self.scheduler.close(named, **how, **when)
        else:
            self.rejected(lambda: self.scheduler.close(named, **how, **when))

    def abandon(self):
        clients = self.some(self.model.clients, 4)
        if self.dice.random() < 0.3:
            self.scheduler.abandon()
            clients = self.model.in_flight()
        else:
            self.scheduler.abandon(self.collection(clients)[0])
        self.model.abandon(clients)

    def set_something(self):
        model, dice = self.model, self.dice
        what = dice.randrange(4)
        if what == 0:
            m = dice.randint(max(1, self.settings["min_responses"]), 5)
            self.scheduler.cohort_size = model.cohort_size = m
        elif what == 1:
            value = dice.choice([1.0, 1.3, 2, "auto"])
            self.scheduler.over_selection = model.over_selection = value
        elif what == 2:
            changed = {
                "late": dice.choice(["apply", "drop"]),
                "max_staleness": dice.choice([None, 0, 2]),
                "lifetime_s": dice.choice([None, 5.0, 1e6]),
            }
            vars(model).update(changed)
            self.scheduler.plan = replace(self.scheduler.plan, **changed)
        else:
            value = dice.randint(1, 4)
            self.scheduler.max_open_rounds = model.max_open_rounds = value
            model.prune()

    def read(self):
        """Call what only shows something."""
        before = saved_state(self.scheduler)
        str(self.scheduler), repr(self.scheduler), self.scheduler.diagnostics()
        for client in self.some(self.model.clients, 3):
            str(self.scheduler.explain(client))
        assert differences(saved_state(self.scheduler), before) == []

    def loaded(self, away_s=0.0, **settings):
        """Return the scheduler from a file, which was saved a while ago."""
        path = self.folder / "state.bsfl"
        self.scheduler.save(path, wait=self.dice.random() < 0.7)
        self.scheduler.saved()
        if self.is_spied:
            settings.setdefault("policy", Spy(self.policy.policy))
        self.clock_s += away_s
        loaded = Scheduler.load(path, clock=self.clock, on_round=keep_record, **settings)
        path.unlink()
        CALLS.clear()
        return loaded

    def continue_as_copy(self):
        """Continue with a deep copy, or with what a file holds, and select the same cohort."""
        if self.dice.random() < 0.3:
            other = copy.deepcopy(self.scheduler)
            # Decision: a copy writes to no journal and calls nobody back until it is asked to.
            other.publish_like(self.scheduler)
        else:
            other = self.loaded()
        assert differences(saved_state(other), saved_state(self.scheduler)) == []
        assert self.next_cohort(other) == self.next_cohort(self.scheduler)
        assert differences(saved_state(other), saved_state(self.scheduler)) == []
        self.scheduler = other

    def next_cohort(self, scheduler):
        """Return the cohort that a scheduler selects next, or why it selects none."""
        when = {} if self.has_clock else {"now_s": self.time_s}
        try:
            cohort = copy.deepcopy(scheduler).select(**when)
        except InvalidInput as error:
            return str(error)
        finally:
            CALLS.clear()
        return list(cohort), cohort.n_invited, cohort.round

    def restart(self):
        """Continue from a file after a while, with other settings."""
        dice, model, settings = self.dice, self.model, {}
        if dice.random() < 0.3:
            settings["cohort_size"] = dice.randint(max(1, self.settings["min_responses"]), 5)
        if dice.random() < 0.3:
            settings["over_selection"] = dice.choice([1.0, 1.4, "auto"])
        vars(model).update(settings)
        if dice.random() < 0.3 and is_forgettable(self.policy):
            other = dice.choice([p for p in registered().values() if is_forgettable(p)])
            self.policy = settings["policy"] = Spy(other) if self.is_spied else other
            model.needs = self.policy.needs
        away_s = dice.choice([0.0, 1000.0, -500.0]) if self.has_clock else 0.0
        self.scheduler = self.loaded(away_s, **settings)
        model.shift(away_s)

    # --- wrong input ----------------------------------------------------------------------------

    def be_wrong(self):
        calls = wrong_calls(self)
        self.move = name = self.dice.choice(list(calls))
        self.rejected(calls[name])
        self.counts["wrong: " + name] += 1

    def rejected(self, call):
        """Check that a call is rejected by one of our errors, and that nothing happened."""
        before = saved_state(self.scheduler)
        with pytest.raises(BsflError) as error:
            call()
        self.check_rejection(before, error.value)

    def check_rejection(self, before, error):
        assert differences(saved_state(self.scheduler), before) == []
        assert "\n" not in str(error)
        assert 0 < len(str(error)) < 1_000
        assert RECORDS == []
        CALLS.clear()


def wrong_calls(life):
    """Return calls that must be rejected now, by what is wrong with them."""
    one, model, dice = life.scheduler, life.model, life.dice
    pick, some = dice.choice, life.some
    known, new, in_flight = list(model.clients), life.new_ids(), model.in_flight()
    by_ids = pick([one.join, one.leave, one.online, one.offline, one.forget, one.abandon])
    by_known_ids = pick([one.leave, one.offline, one.forget, one.abandon])
    wrong_id = pick([*WRONG_IDS, True])
    other_type = 5 if life.ids is NAMES else "five"
    client, clients = pick(life.ids), some(life.ids, 4) or life.ids[:1]
    attribute = pick(["samples", "quality"])
    values = [0.5] * (len(clients) - 1) + [pick(WRONG_NUMBERS)]
    rows = [[1.0, 2.0] for _ in clients]
    responses = dict.fromkeys(some(in_flight, 2), 1.0)
    later = model.round + 1

    def broken():
        yield from clients
        raise InvalidInput("the caller's own generator failed")

    calls = {
        "no collection": lambda: pick([by_ids, one.select])(pick(WRONG_GROUPS)),
        "an impossible id": lambda: pick([by_ids, one.select])([*some(known, 3), wrong_id]),
        "both types of ids": lambda: one.join([*new[:1], other_type, "x", 77]),
        "a generator that fails": lambda: pick([by_ids, one.select])(broken()),
        "duplicate clients": lambda: pick([by_ids, one.select])([*clients, clients[0]]),
        "a question about an impossible client": lambda: pick([one.client, one.explain])(wrong_id),
        "an impossible client registered": lambda: one.register(wrong_id, samples=3.0),
        "a wrong attribute": lambda: one.join(clients, **{attribute: values}),
        "a wrong attribute registered": lambda: one.register(client, **{attribute: values[-1]}),
        "too many attributes": lambda: one.join(clients, **{attribute: [0.5, *values]}),
        "attributes that are no list": lambda: one.join(clients, **{attribute: pick([0.5, "x"])}),
        "wrong features": lambda: one.join(
            clients, features=[*rows[1:], [pick(WRONG_FEATURES), 2.0]]
        ),
        "features of too many": lambda: one.join(clients, features=[*rows, [1.0, 2.0]]),
        "features of uneven length": lambda: one.join(life.ids[:2], features=[[1.0], [1.0, 2.0]]),
        "features without columns": lambda: one.join(clients, features=[[] for _ in clients]),
        "a wrong cohort size": lambda: one.select(cohort_size=pick([*WRONG_SIZES, 1000, 10**15])),
        "a wrong over-selection": lambda: one.select(over_selection=pick(WRONG_OVER_SELECTIONS)),
        "a wrong deadline": lambda: one.select(life.ids, deadline_s=pick([0.0, *WRONG_TIMES])),
        "a wrong time of select": lambda: one.select(life.ids, now_s=pick(WRONG_TIMES)),
        "a wrong time of observe": lambda: one.observe(responses, now_s=pick(WRONG_TIMES)),
        "a wrong time of close": lambda: one.close(now_s=pick(WRONG_TIMES)),
        "responses that are no mapping": lambda: one.observe(pick([*WRONG_GROUPS, None, [1.0]])),
        "a response of an impossible client": lambda: one.observe({wrong_id: 1}, strict=True),
        "responses to no round": lambda: one.observe(responses, round=pick([later, *WRONG_ROUNDS])),
        "no round closed": lambda: one.close(pick([later, *WRONG_ROUNDS])),
        "a wrong size set": lambda: setattr(one, "cohort_size", pick(WRONG_SIZES)),
        "a wrong limit set": lambda: setattr(one, "max_open_rounds", pick(WRONG_SIZES)),
        "a wrong over-selection set": lambda: setattr(
            one, "over_selection", pick(WRONG_OVER_SELECTIONS)
        ),
        "a wrong plan set": lambda: setattr(one, "plan", pick([5, None, {}, "plan", one])),
    }
    if new:
        unknown = [*some(known, 2), new[0]]
        calls |= {
            "an unknown client": lambda: by_known_ids(unknown),
            "a question about an unknown client": lambda: pick([one.client, one.explain])(new[0]),
            "an unknown client renamed": lambda: one.rename(new[0], client),
            "a response of an unknown client": lambda: one.observe({new[0]: 1.0}, strict=True),
        }
    if known:
        calls |= {
            "an id of another type": lambda: pick([by_ids, one.select])([known[0], other_type]),
            "a wrong name": lambda: one.rename(known[0], pick([wrong_id, other_type])),
        }
    if idle := [c for c in known if c not in in_flight]:
        uninvited = {**responses, pick(idle): 1.0}
        calls["a response of an idle client"] = lambda: one.observe(uninvited, strict=True)
    if in_flight:
        impossible = {**responses, in_flight[0]: pick(WRONG_RESPONSES)}
        calls["an impossible response"] = lambda: one.observe(impossible, strict=True)
    numbers = range(1, later)
    elsewhere = [(c, n) for c in in_flight for n in numbers if n not in model.pending_rounds(c)]
    if elsewhere:
        pending, other = pick(elsewhere)
        calls["a response to another round"] = lambda: one.observe(
            {pending: 1.0}, round=other, strict=True
        )
    if model.rounds:
        r = pick(list(model.rounds.values()))
        number, fresh = r["round"], model.fresh(r)
        foreign = pick([wrong_id, *[c for c in known if c not in fresh]])
        wrong = pick([[*some(fresh), foreign], pick(WRONG_GROUPS), fresh[:1] * 2 or 5])
        calls["wrong clients aggregated"] = lambda: one.close(number, aggregated=wrong)
        if fresh:
            both = {"aggregated": fresh[:1], "discard": True}
            calls["discarded and aggregated"] = lambda: one.close(number, **both)
        if r["confirmed"]:
            calls["credit replaced twice"] = lambda: one.close(number, discard=True)
    return calls


# --- tests ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_log_of_rejected_responses(caplog):
    caplog.set_level(logging.ERROR, "bsfl")


def live(policies, steps, folder, first_seed=0):
    """Run so many steps with each policy, in several lives, and return what happened."""
    counts = Counter()
    for number, (name, policy) in enumerate(policies.items()):
        for start in range(0, steps, STEPS_OF_A_LIFE):
            seed = first_seed + number * 1_000 + start // STEPS_OF_A_LIFE
            life = Life(policy, seed)
            try:
                life.live(min(STEPS_OF_A_LIFE, steps - start), folder)
            except BaseException as error:
                step = f"step {life.counts['steps']}: {life.move}"
                error.add_note(f"{name}, seed {seed}, {step}, {life.settings}")
                raise
            counts += life.counts
    assert counts["steps"] == len(policies) * steps
    assert counts["rounds"] > 0.04 * counts["steps"]
    return counts


def test_short_lives_agree_with_the_model(fast_folder):
    some = dict(list(bsfl_variants().items())[::13])
    counts = live(registered() | some, STEPS_SHORT, fast_folder)
    assert sum(name.startswith("wrong: ") for name in counts) >= 40, "each of them was tried"


LONG = registered() | extreme_variants() | pace_variants() | bsfl_variants()
PARTS = 20


@pytest.mark.attack
@pytest.mark.parametrize("part", range(PARTS))
def test_long_lives_agree_with_the_model(part, fast_folder):
    chosen = dict(list(LONG.items())[part::PARTS])
    steps = math.ceil(STEPS_LONG / len(LONG))
    live(chosen, steps, fast_folder, first_seed=1_000_000 * (1 + part))
