"""Random lives of a Scheduler against a model made of plain dicts and sets."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bsfl import BSFL, CsUcbQ, Observation, Scheduler, UniformRandom
from bsfl.errors import InvalidInput, NotSelected

NAMES = st.sampled_from([f"c{i}" for i in range(12)])
COHORT = 3


class SchedulerLife(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(
            [BSFL(alpha=3.0, tau_max=50.0), CsUcbQ(tau_max=50.0), UniformRandom()]
        )
    )
    def start(self, policy):
        self.folder = tempfile.TemporaryDirectory()
        self.scheduler = Scheduler(policy, cohort_size=COHORT, seed=1)
        self.members, self.met = set(), set()
        self.t = 0
        self.waiting, self.chosen = Counter(), dict.fromkeys([f"c{i}" for i in range(12)], 0)
        self.latencies = {f"c{i}": [] for i in range(12)}
        self.unbooked = set()

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(names=st.sets(NAMES, max_size=5))
    def join(self, names):
        self.scheduler.join(sorted(names))
        self.members |= names
        self.met |= names

    @rule(names=st.sets(NAMES, max_size=3))
    def leave(self, names):
        if names <= self.met:
            self.scheduler.leave(sorted(names))
            self.members -= names
        else:
            with pytest.raises(InvalidInput, match="unknown client"):
                self.scheduler.leave(sorted(names))

    @rule(names=st.one_of(st.none(), st.sets(NAMES)))
    def select(self, names):
        after = self.members | (names or set())
        if len(after) < COHORT:
            with pytest.raises(InvalidInput, match="cohort_size must be between 1 and"):
                self.scheduler.select(available=None if names is None else sorted(names))
            return
        cohort = self.scheduler.select(available=None if names is None else sorted(names))
        self.members = after
        self.met |= after
        pool = self.members if names is None else names
        assert set(cohort) <= pool
        assert len(cohort) == len(set(cohort)) == min(COHORT, len(pool))
        assert self.scheduler.last_round.short == (len(pool) < COHORT)
        self.t += 1
        self.waiting.update(cohort)
        for client in self.unbooked:
            self.chosen[client] += 1
        self.unbooked = set(cohort)

    @precondition(lambda self: getattr(self, "waiting", None))
    @rule(data=st.data())
    def answer(self, data):
        who = data.draw(st.sets(st.sampled_from(sorted(self.waiting)), min_size=1))
        answers = {}
        for client in sorted(who):
            latency = data.draw(st.floats(0.1, 100.0))
            outcome = data.draw(st.sampled_from(["ok", "timeout", "failed"]))
            answers[client] = Observation(latency=latency, outcome=outcome)
            self.latencies[client].append(min(latency, 50.0) if outcome == "ok" else 50.0)
        # the oldest answer first: it is one to the current cohort if no other is owed
        current = {c for c in who if self.waiting[c] == 1} & set(self.scheduler.last_round.cohort)
        self.scheduler.observe(answers)
        self.waiting -= Counter(who)
        if current:
            for client in self.unbooked:
                self.chosen[client] += 1
            self.unbooked = set()

    @rule(name=NAMES)
    def answer_uninvited(self, name):
        if name not in self.waiting:
            with pytest.raises(InvalidInput) as error:
                self.scheduler.observe({name: 1.0}, strict=True)
            assert isinstance(error.value, NotSelected) == (name in self.met)
            assert list(self.scheduler.observe({name: 1.0})) == [name]

    @rule()
    def restart(self):
        path = Path(self.folder.name) / "s.bsfl"
        self.scheduler.save(path)
        self.scheduler = Scheduler.load(path)

    @invariant()
    def agrees_with_the_model(self):
        if not hasattr(self, "scheduler"):
            return
        assert self.scheduler.t == self.t
        assert set(self.scheduler.clients) == self.members
        assert set(self.scheduler.outstanding) == set(self.waiting)
        state = self.scheduler.state
        if hasattr(state, "selected"):
            for client in self.met:
                k = self.scheduler._clients.index_of(client)
                if k < len(state.selected):
                    assert state.selected[k] == self.chosen[client]
                    assert getattr(state, "memory", state).observed[k] == len(
                        self.latencies[client]
                    )
        if isinstance(self.scheduler.policy, BSFL):
            for client in self.met:
                k = self.scheduler._clients.index_of(client)
                if k < len(state.memory.mean) and self.latencies[client]:
                    expected = np.mean([1 / s for s in self.latencies[client]])
                    assert state.memory.mean[k] == pytest.approx(expected)


def lives(n):
    """Return a test case that plays so many lives."""
    played = settings(max_examples=n, stateful_step_count=40)
    return type("TestCase", (SchedulerLife.TestCase,), {"settings": played})


TestFewSchedulerLives = lives(5)
TestSchedulerLife = pytest.mark.slow(lives(150))
