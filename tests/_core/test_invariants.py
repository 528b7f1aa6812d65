"""The engine's invariants, numbered as in docs/architecture.md, one direct test for each."""

import ast
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import bsfl
from bsfl import BSFL, Observation, Pace, RoundPlan, Scheduler, UniformRandom
from bsfl._core.clients import ClientIds
from bsfl._core.engine import Engine
from bsfl._core.events import (
    Abandon,
    CloseRound,
    Describe,
    Forget,
    Join,
    Leave,
    OpenRound,
    Respond,
    RoundClosed,
    RoundOpened,
    SetAvailability,
)
from bsfl._core.rounds import CLOSED, CONFIRMED, OPEN
from bsfl._core.state import copy_rows, leaves
from bsfl.errors import InvalidInput, NotSelected
from bsfl.monitoring.stream import entry_of, event_of
from memory_journal import MemoryJournal
from saved_state import saved_state

SOURCE = Path(bsfl.__file__).parent
POLICIES = [Pace(), BSFL(alpha=3.0), UniformRandom()]
PLANS = [
    RoundPlan(target_responses=2),
    RoundPlan(target_responses=2, over_selection=1.5, late="drop"),
    RoundPlan(target_responses=2, over_selection="auto", max_staleness=1),
]


def engine_of(policy=None, plan=PLANS[0], n_clients=8, **settings):
    return Engine(policy or Pace(), plan, n_clients=n_clients, **settings)


def state_of(engine):
    """Return all that an engine remembers, as plain values that can be compared."""
    n, found = engine.pool.n, {"n_rows": engine.n_rows}
    parts = {"pool": engine.pool, "task": engine.task, "policy": engine.policy_state}
    for name, part in parts.items():
        for leaf, value in leaves(part):
            if isinstance(value, np.ndarray):
                rows = value if name == "policy" else value[:n]
                value = value.dtype.str, rows.shape, rows.tobytes()
            found[f"{name}/{leaf}"] = value
    for name, array in engine.rounds.to_arrays().items():
        found[f"rounds/{name}"] = array.tobytes()
    found["pending"] = {k: engine.rounds.pending_rounds(k) for k in range(n)}
    return found


def random_command(engine, rng):
    """Return a command that can be carried out now, of any kind."""
    n, rounds = engine.pool.n, list(engine.rounds)
    some = np.flatnonzero(rng.random(n) < 0.3)
    pending = [one for one in rounds if len(one.pending)]
    closable = [one for one in rounds if one.status != CONFIRMED]
    kind = rng.choice(12)
    if kind < 5 and pending:
        one = pending[rng.integers(len(pending))]
        outcomes = rng.choice(["ok", "ok", "ok", "timeout", "failed"], size=len(one.pending))
        clients = one.pending[rng.random(len(one.pending)) < 0.6].tolist()
        report = {
            k: Observation(latency_s=float(rng.uniform(1, 9)), outcome=str(o), loss=float(k + 1))
            for k, o in zip(clients, outcomes, strict=False)
        }
        return Respond(round=one.number, report=report)
    if kind < 7 and closable:
        one = closable[rng.integers(len(closable))]
        fresh = one.cohort[one.fresh]
        return CloseRound(
            round=one.number,
            aggregated=fresh[rng.random(len(fresh)) < 0.7] if rng.random() < 0.5 else None,
            discard=bool(rng.random() < 0.2),
            is_automatic=bool(one.is_open and rng.random() < 0.5),
        )
    if kind == 7:
        return SetAvailability(online=some, offline=np.flatnonzero(rng.random(n) < 0.1))
    if kind == 8:
        return Join(n_new=int(rng.integers(3)), clients=some)
    if kind == 9:
        return Leave(clients=some[:1])
    if kind == 10:
        return Abandon(clients=some)
    if kind == 11 and rng.random() < 0.2:
        return Forget(kept=rng.random(n) < 0.9)
    return OpenRound()


def life(engine, seed, n_steps=60):
    """Carry out random commands; yield each event just before it is applied."""
    rng = np.random.default_rng(seed)
    for now_s in range(n_steps):
        commands = [random_command(engine, rng)]
        if isinstance(commands[0], OpenRound):
            beyond = engine.rounds_beyond_limit()
            commands = [CloseRound(round=n, is_automatic=True) for n in beyond] + commands
        for command in commands:
            try:
                event = engine.decide(command, float(now_s))
            except InvalidInput:  # such as fewer members than a cohort
                continue
            yield event
            engine.apply(event)


LIVES = [(policy, plan, seed) for policy in POLICIES for plan in PLANS for seed in (1, 2)]
every_life = pytest.mark.parametrize(("policy", "plan", "seed"), LIVES)


# --- deciding and applying -----------------------------------------------------------------------


@every_life
def test_i01_decide_changes_nothing(policy, plan, seed):
    engine = engine_of(policy, plan, max_open_rounds=2)
    engine.run(OpenRound())
    rng = np.random.default_rng(seed)
    for _ in life(engine, seed):
        before = state_of(engine)
        command = random_command(engine, rng)
        with suppress(InvalidInput):
            engine.decide(command, 5.0)
        assert state_of(engine) == before, command
    assert engine.task.round > 3


@pytest.mark.parametrize("policy", POLICIES)
def test_i01_deciding_with_new_clients_changes_nothing_and_opening_gives_them_rows(policy):
    engine = engine_of(policy)
    opened = engine.run(OpenRound())
    engine.run(Respond(round=1, report={int(opened.cohort[0]): Observation(latency_s=3.0)}))
    engine.run(CloseRound(round=1))
    engine.run(Join(n_new=3))
    before = state_of(engine)
    event = engine.decide(OpenRound(), 0.0)
    assert state_of(engine) == before
    expected = policy.init(engine.pool.n)
    copy_rows(engine.policy_state, expected)
    engine.apply(event)
    for (name, value), (_, wanted) in zip(
        leaves(engine.policy_state), leaves(expected), strict=True
    ):
        assert np.array_equal(value, wanted, equal_nan=True), name
    assert engine.n_rows == engine.pool.n


class NeverSelects(Pace):
    def select(self, state, context, rng):
        raise RuntimeError("no cohort")


@every_life
def test_i02_apply_decides_nothing(policy, plan, seed):
    decided = engine_of(policy, plan)
    applied = engine_of(NeverSelects() if isinstance(policy, Pace) else policy, plan)
    applied.decide = None  # nothing below apply may call it
    for event in life(decided, seed):
        applied.apply(event)
    assert state_of(applied) == state_of(decided)


class FailsHalfWay(Pace):
    """Changes its state for the clients of a report, and then raises, if any latency is 7 s."""

    def observe(self, state, context, report):
        super().observe(state, context, report)
        if np.any(report.latency_s == 7.0):
            raise KeyboardInterrupt


def test_i03_a_call_that_raises_changes_nothing():
    scheduler = Scheduler(FailsHalfWay(), cohort_size=2, max_open_rounds=2)
    for _ in range(4):
        cohort = scheduler.select(["ann", "bob", "cem", "dan"])
        scheduler.observe(dict.fromkeys(cohort, 3.0), round=cohort)
    first, second = scheduler.select(), scheduler.select()
    before = saved_state(scheduler)
    for call in (
        lambda: scheduler.observe({first[0]: 2.0, first[1]: 7.0}, round=first),
        lambda: scheduler.select(["new", "fed"], cohort_size=70),
        lambda: scheduler.close(second, aggregated=["ann"]),
        lambda: scheduler.forget(["eve"]),
    ):
        with pytest.raises((InvalidInput, KeyboardInterrupt)):
            call()
        assert saved_state(scheduler) == before


@every_life
@pytest.mark.parametrize("n_clients", [8, 1200])  # arrays are copied whole, and by row
def test_i03_an_interrupt_restores_the_state_before_the_transaction(policy, plan, seed, n_clients):
    engine = engine_of(policy, plan, n_clients=n_clients, max_open_rounds=2)
    for event in life(engine, seed):
        before = state_of(engine)
        with suppress(KeyboardInterrupt), engine.transaction():
            engine.apply(Join(n_new=1, clients=np.arange(3)))
            if not isinstance(event, Forget):  # it names the clients that are there
                engine.apply(event)
            raise KeyboardInterrupt
        assert state_of(engine) == before, event


def test_i03_a_select_that_raises_takes_back_the_rows_of_new_clients():
    scheduler = Scheduler(NeverSelects(), cohort_size=2)
    scheduler.join(["ann", "bob"])
    before = saved_state(scheduler)
    with pytest.raises(RuntimeError):
        scheduler.select()
    assert saved_state(scheduler) == before


# --- the life of a round -------------------------------------------------------------------------


@every_life
def test_i04_a_round_is_open_closed_or_discarded_and_never_opens_again(policy, plan, seed):
    engine = engine_of(policy, plan, max_open_rounds=3)
    status, opened = {}, []
    for event in life(engine, seed):
        if isinstance(event, RoundOpened):
            opened.append(event.round)
        for one in engine.rounds:
            assert one.status in (OPEN, CLOSED, CONFIRMED)
            assert one.status >= status.get(one.number, OPEN)
            assert not (one.is_open and one.is_discarded)
            status[one.number] = one.status
    assert opened == list(range(1, len(opened) + 1))


def test_i05_responses_of_one_call_that_reach_the_target_are_all_fresh():
    scheduler = Scheduler(UniformRandom(), cohort_size=2, over_selection=2.0)
    cohort = scheduler.select(["ann", "bob", "cem", "dan"])
    scheduler.observe(dict.fromkeys(cohort[:3], 3.0), round=cohort)
    assert scheduler.pending() == []  # it has closed
    assert (scheduler.last_round.n_fresh, scheduler.last_round.n_late) == (3, 0)
    scheduler.observe({cohort[3]: 9.0}, round=cohort)
    assert (scheduler.last_round.n_fresh, scheduler.last_round.n_late) == (3, 1)


def test_i06_participation_is_credited_at_the_close_or_when_a_late_response_is_aggregated():
    engine = engine_of(UniformRandom(), RoundPlan(target_responses=2, over_selection=2.0))
    opened = engine.run(OpenRound())
    a, b, c, d = opened.cohort.tolist()

    def credited(command):
        engine.run(command)
        return engine.task.participations[[a, b, c, d]].tolist()

    def respond(*clients):
        return Respond(round=1, report={k: Observation(latency_s=3.0) for k in clients})

    assert credited(respond(a, b)) == [0, 0, 0, 0]
    assert credited(CloseRound(round=1, is_automatic=True)) == [1, 1, 0, 0]
    assert credited(respond(c)) == [1, 1, 1, 0]  # late
    assert credited(CloseRound(round=1, aggregated=np.array([b]))) == [0, 1, 1, 0]  # replaced
    with pytest.raises(InvalidInput, match="cannot be replaced"):
        engine.decide(CloseRound(round=1), 0.0)
    with pytest.raises(NotSelected):
        engine.decide(respond(a), 0.0)
    engine.plan = RoundPlan(target_responses=2, over_selection=2.0, late="drop")
    assert credited(respond(d)) == [0, 1, 1, 0]
    assert engine.task.dropped[d] == 1


@every_life
def test_i07_participations_never_exceed_invitations_without_dropped_responses(policy, plan, seed):
    engine = engine_of(policy, plan, max_open_rounds=2)
    for _ in life(engine, seed, n_steps=150):
        task, n = engine.task, engine.pool.n
        most = task.invitations[:n] - task.dropped[:n]
        assert np.all((task.participations[:n] >= 0) & (task.participations[:n] <= most))


@dataclass(frozen=True)
class Selects(UniformRandom):
    cohort: list

    def select(self, state, context, rng):
        return np.array(self.cohort)


@pytest.mark.parametrize("cohort", [[0, 0], [0, 9], [0, 3], [0, -1], [0], [0, 1, 2]])
def test_i08_a_client_is_selected_at_most_once_a_round_and_only_if_available(cohort):
    engine = engine_of(Selects(cohort))
    engine.run(SetAvailability(offline=np.array([3])))
    with pytest.raises(InvalidInput, match="must select 2 distinct available clients"):
        engine.decide(OpenRound(), 0.0)


def test_i08_clients_in_flight_are_not_available_before_their_invitation_expires():
    plan = RoundPlan(target_responses=3, lifetime_s=10.0)
    engine = engine_of(plan=plan, n_clients=6, max_open_rounds=3)
    first = engine.run(OpenRound(), 0.0).cohort
    second = engine.run(OpenRound(), 9.0)
    assert not set(second.cohort) & set(first)
    assert second.busy.tolist() == first.tolist()
    assert engine.available(10.0)[0].tolist() == first.tolist()


# --- repeating -----------------------------------------------------------------------------------


@every_life
def test_i09_equal_seeds_and_events_give_equal_cohorts(policy, plan, seed):
    def cohorts(root):
        engine = engine_of(policy, plan, seed=root)
        events = list(life(engine, seed))
        return [event.cohort.tolist() for event in events if isinstance(event, RoundOpened)]

    assert cohorts(5) == cohorts(5)
    assert len(cohorts(5)) > 3


@every_life
def test_i10_replaying_the_journal_gives_the_same_state(policy, plan, seed):
    engine, ids = engine_of(policy, plan, n_clients=0), ClientIds()
    replayed, replayed_ids = engine_of(policy, plan, n_clients=0), ClientIds()
    lines = []

    def write(event):
        """Write an event as a scheduler does, which names new clients before they join."""
        if isinstance(event, Join):
            ids.append([f"{len(lines)}-{i}" for i in range(event.n_new)])
        lines.append(json.dumps(entry_of(event, ids.names)))
        if isinstance(event, Forget):
            ids.keep(event.kept)

    samples = {"samples": np.arange(1.0, 9)}
    for event in (Join(n_new=8), Describe(clients=np.arange(8), attributes=samples)):
        write(event)
        engine.apply(event)
    for event in life(engine, seed):
        write(event)
    for line in lines:
        replayed.apply(event_of(json.loads(line), replayed_ids))
    assert replayed_ids.names == ids.names
    assert state_of(replayed) == state_of(engine)


def test_i11_sequence_numbers_of_events_are_consecutive():
    journal = MemoryJournal(availability=True)
    scheduler = Scheduler(UniformRandom(), cohort_size=1, journal=journal)
    cohort = scheduler.select(["ann", "bob", "cem"])  # joined, availability, opened
    with pytest.raises(InvalidInput):
        scheduler.select(["new", 7])
    scheduler.observe({cohort[0]: 3.0}, round=cohort)  # responses, closed
    scheduler.rename("ann", "eve")
    scheduler.leave(["bob"])
    scheduler.forget(["cem"])
    entries = journal.entries
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    kinds = ["joined", "opened", "responses", "closed", "renamed", "left", "forgotten"]
    assert [entry["kind"] for entry in entries] == kinds


# --- who may do what -----------------------------------------------------------------------------


def modules():
    """Return all modules with their syntax trees."""
    return {
        path.relative_to(SOURCE).with_suffix("").as_posix(): ast.parse(path.read_text())
        for path in sorted(SOURCE.rglob("*.py"))
    }


def policy_calls(tree):
    """Yield calls of select or observe with a state and a context, outside of policy wrappers."""
    wrappers = [
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef)
        and any(getattr(base, "id", "") == "PolicyWrapper" for base in one.bases)
    ]
    allowed = {id(node) for one in wrappers for node in ast.walk(one)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("select", "observe", "close")
            and len(node.args) >= 2  # a scheduler takes one argument, and keywords
            and getattr(node.func.value, "id", "") != "np"
            and id(node) not in allowed
        ):
            yield node


def test_i12_only_the_engine_calls_policies():
    callers = {name for name, tree in modules().items() if any(policy_calls(tree))}
    allowed = {"_core/engine", "policy", "policies/alternating"}
    assert {name for name in callers if not name.startswith("testing/")} == allowed


def test_i12_a_call_of_a_policy_is_seen():
    source = "class A:\n    def f(self):\n        p.select(state, context, rng)\n"
    wrapper = source.replace("class A", "class A(PolicyWrapper)")
    assert [len(list(policy_calls(ast.parse(text)))) for text in (source, wrapper)] == [1, 0]
    assert list(policy_calls(ast.parse("scheduler.select(ids, cohort_size=3, now_s=2.0)"))) == []


CORE = ("attributes", "engine", "events", "pool", "rounds", "state", "task")
ENGINE_LAYERS = (
    *(f"_core/{name}" for name in CORE),
    *("policies", "estimators", "solvers", "policy", "types", "random"),
)
"""All that decides and learns; `_core/clients` holds ids, `_core/registry` loads custom files by
name, `validation` looks whether a folder can be made."""
CLOCKS = {"time", "datetime"}
FILES = {"os", "io", "pathlib", "tempfile", "shutil", "fcntl", "mmap", "pickle", "sqlite3"}
IDS = {"bsfl._core.clients", "bsfl.persistence", "bsfl.monitoring"}


def imported(tree):
    """Yield what a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "", *(f"{node.module}.{one.name}" for one in node.names))


def test_i13_nothing_below_the_scheduler_reads_a_clock_or_knows_ids_or_files():
    layers = re.compile(rf"({'|'.join(ENGINE_LAYERS)})(/.*)?")
    found = {name: tree for name, tree in modules().items() if layers.fullmatch(name)}
    assert len(found) > 40
    for name, tree in found.items():
        for target in imported(tree):
            assert target.partition(".")[0] not in CLOCKS | FILES, f"{name} imports {target}"
            assert not target.startswith(tuple(IDS)), f"{name} imports {target}"
        for node in ast.walk(tree):
            function = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            assert function not in ("open", "exec", "eval", "print"), f"{name} calls {function}"
            assert getattr(node, "attr", "") not in ("monotonic", "perf_counter", "ClientId"), name


class Writes(UniformRandom):
    """Writes to every array of its context that is a part of the engine's state."""

    def select(self, state, context, rng):
        assert self.write(context) >= 10
        return super().select(state, context, rng)

    def observe(self, state, context, report):
        assert self.write(context) >= 10

    def write(self, context):
        values = [
            getattr(view, name)
            for view in (context.pool, context.task)
            for name in dir(view)
            if not name.startswith("_")
        ]
        arrays = [x for x in values if isinstance(x, np.ndarray) and x.base is not None]
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
        return len(arrays)


def test_i14_arrays_of_the_state_are_read_only_for_policies():
    engine = engine_of(Writes())
    values = {"samples": np.arange(1.0, 9), "quality": np.full(8, 0.5), "features": np.ones((8, 2))}
    engine.run(Describe(clients=np.arange(8), attributes=values))
    opened = engine.run(OpenRound())
    report = {int(k): Observation(latency_s=3.0) for k in opened.cohort}
    engine.run(Respond(round=1, report=report))


@dataclass(frozen=True)
class NotesCohorts(UniformRandom):
    """Notes the cohorts that its reports name."""

    named: list = field(default_factory=list)

    def observe(self, state, context, report):
        if len(report.invited):
            self.named.append((report.round, report.invited.tolist()))


@pytest.mark.parametrize("plan", PLANS)
def test_i15_every_round_names_its_cohort_to_the_policy_once(plan):
    policy = NotesCohorts()
    engine = engine_of(policy, plan, max_open_rounds=2)
    cohorts, closed = {}, set()
    for event in life(engine, seed=3, n_steps=100):
        if isinstance(event, RoundOpened):
            cohorts[event.round] = event.cohort.tolist()
        elif isinstance(event, RoundClosed):
            closed.add(event.round)
        elif isinstance(event, Forget):
            return
    named = dict(policy.named)
    assert len(policy.named) == len(named)
    assert all(named[number] == cohorts[number] for number in named)
    assert {number for number in closed if cohorts[number]} - {max(cohorts)} <= set(named)
