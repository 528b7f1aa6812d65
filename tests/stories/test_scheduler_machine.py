"""Random lives of a Scheduler against a model made of plain dicts and sets."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bsfl import BSFL, CsUcbQ, Observation, Pace, Scheduler, UniformRandom
from bsfl.errors import InvalidInput, NotSelected, UnknownClient
from saved_state import differences, saved_state

IDS = [f"c{i:02}" for i in range(12)]
NAMES = st.sampled_from(IDS)
M = 2
POLICIES = (BSFL(alpha=3.0, tau_max=50.0), CsUcbQ(tau_max=50.0), UniformRandom(), Pace())
COUNTS = ("invitations", "participations", "late", "timeouts", "failures")


@dataclass
class Opened:
    """What the model knows of a round."""

    pending: set
    fresh: set = field(default_factory=set)
    n_reported: int = 0
    status: str = "open"
    is_discarded: bool = False
    credited: set = field(default_factory=set)


class SchedulerLife(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(POLICIES),
        over_selection=st.sampled_from([1.0, 1.5]),
        late=st.sampled_from(["apply", "drop"]),
        max_staleness=st.sampled_from([None, 1]),
        limit=st.integers(1, 3),
    )
    def start(self, policy, over_selection, late, max_staleness, limit):
        self.folder = tempfile.TemporaryDirectory()
        self.path, self.closed = Path(self.folder.name) / "s.bsfl", []
        self.scheduler = Scheduler(
            policy,
            cohort_size=M,
            over_selection=over_selection,
            late=late,
            max_staleness=max_staleness,
            max_open_rounds=limit,
            seed=1,
            on_round=self.closed.append,
            clock=lambda: 0.0,
        )
        self.n, self.late, self.max_staleness, self.limit = (
            M * over_selection,
            late,
            max_staleness,
            limit,
        )
        self.known, self.members, self.online = [], set(), set()  # known: in the order of joining
        self.rounds, self.number, self.n_closed = {}, 0, 0
        self.counts = {}

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()

    # --- clients ----------------------------------------------------------------------------------

    def enter(self, names):
        for name in names:
            if name not in self.known:
                self.known.append(name)
                self.counts[name] = dict.fromkeys(COUNTS, 0)
        self.members |= set(names)

    @rule(names=st.sets(NAMES, max_size=5))
    def join(self, names):
        self.scheduler.join(sorted(names))
        self.enter(sorted(names))
        self.online |= names

    @rule(names=st.sets(NAMES, max_size=4))
    def come_online(self, names):
        back = names - self.members
        self.scheduler.online(sorted(names))
        self.enter(sorted(back))
        self.online |= names

    @rule(names=st.sets(NAMES, max_size=3), how=st.sampled_from(["leave", "offline", "forget"]))
    def go(self, names, how):
        call = getattr(self.scheduler, how)
        if not names <= set(self.known):
            self.rejected(lambda: call(sorted(names)), UnknownClient)
            return
        call(sorted(names))
        self.online -= names
        if how != "offline":
            self.members -= names
        if how == "forget":
            self.known = [name for name in self.known if name not in names]
            for one in self.rounds.values():
                for group in (one.pending, one.fresh, one.credited):
                    group -= names
            self.close_complete()
            for name in names:
                del self.counts[name]

    # --- rounds -----------------------------------------------------------------------------------

    @rule(names=st.one_of(st.none(), st.sets(NAMES)))
    def select(self, names):
        available = None if names is None else sorted(names)
        if len(self.members | (names or set())) < M:
            self.rejected(lambda: self.scheduler.select(available), InvalidInput)
            return
        cohort = self.scheduler.select(available)
        for number in self.opened()[: len(self.opened()) - self.limit + 1]:
            self.close(number, automatic=True)
        if names is not None:
            self.enter(available)
            self.online = set(names)
        assert cohort == [name for name in self.known if name in set(cohort)]
        assert set(cohort) <= self.online
        assert len(cohort) == min(self.n, len(self.online))
        self.number += 1
        assert cohort.round == self.number
        assert self.scheduler.last_round.n_available == len(self.online)
        self.rounds[self.number] = Opened(set(cohort))
        for name in cohort:
            self.counts[name]["invitations"] += 1
        self.close_complete()
        self.drop_old()

    def opened(self):
        return [number for number, one in self.rounds.items() if one.status == "open"]

    def close(self, number, *, automatic, credited=None, discard=False):
        one = self.rounds[number]
        self.n_closed += one.status == "open"
        for name in one.credited:
            self.counts[name]["participations"] -= 1
        one.credited = set() if discard else set(one.fresh if credited is None else credited)
        for name in one.credited:
            self.counts[name]["participations"] += 1
        one.status, one.is_discarded = "closed" if automatic else "final", discard

    def close_complete(self):
        for number in self.opened():
            one = self.rounds[number]
            if len(one.fresh) >= M or not one.pending:
                self.close(number, automatic=True)

    def drop_old(self):
        for number in list(self.rounds):
            one = self.rounds[number]
            if one.status != "open" and not one.pending and number <= self.number - self.limit:
                del self.rounds[number]

    @precondition(lambda self: any(one.pending for one in self.rounds.values()))
    @rule(data=st.data(), names_round=st.booleans())
    def observe(self, data, names_round):
        pending = {n: one.pending for n, one in self.rounds.items() if one.pending}
        number = data.draw(st.sampled_from(sorted(pending)))
        names = data.draw(st.sets(st.sampled_from(sorted(pending[number])), min_size=1))
        responses = {}
        for name in sorted(names):
            outcome = data.draw(st.sampled_from(["ok", "ok", "timeout", "failed"]))
            responses[name] = Observation(
                latency_s=data.draw(st.floats(0.1, 100.0)), outcome=outcome
            )
        assert self.scheduler.observe(responses, round=number if names_round else None) == {}
        for name, response in responses.items():
            own = number if names_round else max(n for n, one in pending.items() if name in one)
            self.report(self.rounds[own], own, name, response.outcome)
        self.close_complete()
        self.drop_old()

    def report(self, one, number, name, outcome):
        one.pending = one.pending - {name}
        counts = self.counts[name]
        if outcome != "ok":
            counts["timeouts" if outcome == "timeout" else "failures"] += 1
        elif one.status == "open":
            one.fresh.add(name)
        else:
            counts["late"] += 1
            is_old = self.max_staleness is not None and self.number - number > self.max_staleness
            if self.late == "apply" and not one.is_discarded and not is_old:
                counts["participations"] += 1

    @rule(name=NAMES)
    def observe_uninvited(self, name):
        if not any(name in one.pending for one in self.rounds.values()):
            error = NotSelected if name in self.known else UnknownClient
            self.rejected(lambda: self.scheduler.observe({name: 1.0}, strict=True), error)
            before = saved_state(self.scheduler)
            assert list(self.scheduler.observe({name: 1.0})) == [name]
            assert saved_state(self.scheduler) == before

    @precondition(lambda self: getattr(self, "rounds", None))
    @rule(data=st.data(), how=st.sampled_from(["plain", "aggregated", "discard"]))
    def close_by_hand(self, data, how):
        number = data.draw(st.sampled_from(sorted(self.rounds)))
        one = self.rounds[number]
        if how == "plain":
            self.scheduler.close(number)
            if one.status == "open":
                self.close(number, automatic=False)
        else:
            some = data.draw(st.sets(st.sampled_from(sorted(one.fresh)))) if one.fresh else set()
            chosen = {"discard": True} if how == "discard" else {"aggregated": sorted(some)}
            if one.status == "final":
                self.rejected(lambda: self.scheduler.close(number, **chosen), InvalidInput)
                return
            self.scheduler.close(number, **chosen)
            self.close(number, automatic=False, credited=some, discard=how == "discard")
        self.drop_old()

    @rule(names=st.sets(NAMES, max_size=3))
    def abandon(self, names):
        if not names <= set(self.known):
            self.rejected(lambda: self.scheduler.abandon(sorted(names)), UnknownClient)
            return
        self.scheduler.abandon(sorted(names))
        for one in self.rounds.values():
            one.pending = one.pending - names
        self.close_complete()
        self.drop_old()

    @rule()
    def restart(self):
        self.scheduler.save(self.path)
        before = saved_state(self.scheduler)
        self.scheduler = Scheduler.load(self.path, on_round=self.closed.append, clock=lambda: 0.0)
        assert differences(saved_state(self.scheduler), before) == []

    def rejected(self, call, error):
        before = saved_state(self.scheduler)
        with pytest.raises(error):
            call()
        assert differences(saved_state(self.scheduler), before) == []

    # --- verdict ----------------------------------------------------------------------------------

    @invariant()
    def agrees_with_the_model(self):
        if not hasattr(self, "scheduler"):
            return
        scheduler = self.scheduler
        assert scheduler.round == self.number
        assert scheduler.clients == [name for name in self.known if name in self.members]
        rows = {row["client"]: row for row in scheduler.table()}
        assert list(rows) == self.known
        for name, row in rows.items():
            assert {count: row[count] for count in COUNTS} == self.counts[name], name
            assert row["online"] == (name in self.online)
            assert row["pending"] == sum(name in one.pending for one in self.rounds.values())
        pending = {one.round: set(one.pending) for one in scheduler.pending()}
        assert pending == {number: self.rounds[number].pending for number in self.opened()}
        in_flight = [
            name
            for one in self.rounds.values()
            for name in sorted(one.pending, key=self.known.index)
        ]
        assert scheduler.in_flight == list(dict.fromkeys(in_flight))
        assert len(self.closed) == self.n_closed
        assert len({record.round for record in self.closed}) == self.n_closed, "announced once"


def lives(n):
    """Return a test case that runs so many lives."""
    chosen = settings(max_examples=n, stateful_step_count=40)
    return type("TestCase", (SchedulerLife.TestCase,), {"settings": chosen})


TestFewSchedulerLives = lives(15)
TestSchedulerLife = pytest.mark.slow(lives(300))
