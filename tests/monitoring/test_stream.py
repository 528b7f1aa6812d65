"""Events as entries of a journal, and back: numbers and ids survive exactly."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from bsfl import Observation, RoundPlan, UniformRandom
from bsfl._core.clients import ClientIds
from bsfl._core.engine import Engine
from bsfl._core.events import (
    Abandon,
    CloseRound,
    Describe,
    Join,
    Leave,
    OpenRound,
    Respond,
    SetAvailability,
)
from bsfl.errors import InvalidInput
from bsfl.monitoring.stream import entry_of, event_of, settings_entry, settings_of
from bsfl.types import RoundReport

NAMES = ["ann", "\ud800<b>\x1b", "x" * 1000, "", "Ω", "f"]
NUMBERS = [0.1 + 0.2, 1e-9, 1e12, 1 / 3, 5e-324]


def written(event, ids):
    """Return the event that is read from the line of an event."""
    line = json.dumps(entry_of(event, ids.names), allow_nan=False)
    return event_of(json.loads(line), ids)


def assert_equal(one, other):
    """Compare all fields of events that a journal holds."""
    for name in (field.name for field in fields(one)):
        a, b = getattr(one, name), getattr(other, name)
        if name == "attributes":
            assert a.keys() == b.keys()
            assert all(np.array_equal(a[key], b[key], equal_nan=True) for key in a)
        elif isinstance(a, RoundReport):
            assert_equal(a, b)
        elif isinstance(a, np.ndarray):
            assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes()), name
        elif name not in ("selection", "context"):
            assert a == b, name


@pytest.fixture
def engine():
    return Engine(UniformRandom(), RoundPlan(target_responses=5, deadline_s=1 / 3), n_clients=6)


@pytest.mark.parametrize("names", [NAMES, [2**100, -5, 0, 7, 2**63, 2**64 - 1]])
def test_rounds_survive_exactly(engine, names):
    ids = ClientIds(names)
    opened = engine.run(OpenRound(), now_s=0.1 + 0.7, is_timed=True)
    assert_equal(opened, written(opened, ids))
    report = {
        int(k): Observation(latency_s=max(x, 1e-9), loss=-x, samples=10**12)
        for k, x in zip(opened.cohort[:4], NUMBERS, strict=False)
    }
    report[int(opened.cohort[4])] = Observation(outcome="failed")
    responses = engine.run(Respond(round=1, report=report), now_s=1e15 + 1)
    again = written(responses, ids)
    assert len(again.report.invited) == 0, "the entry of the round has it"
    again = replace(again, report=replace(again.report, invited=responses.report.invited))
    assert_equal(responses, again)
    closed = engine.run(CloseRound(round=1, aggregated=opened.cohort[1:3]), 1 / 3, is_timed=True)
    assert_equal(closed, written(closed, ids))


def test_what_happens_to_clients_survives_exactly():
    ids, some = ClientIds(NAMES), np.array([0, 2, 5])
    rows = np.array([NUMBERS[:2], NUMBERS[2:4], [np.nan, -1e12]])
    for event in (
        Leave(clients=some),
        Abandon(clients=some),
        SetAvailability(online=some, offline=np.array([1])),
        Describe(clients=some, attributes={"features": rows, "samples": rows[:, 0]}),
    ):
        assert_equal(event, written(event, ids))


def test_joining_and_renaming_update_the_ids():
    ids = ClientIds(["ann", "bob"])
    event = event_of({"kind": "joined", "new": ["cem", "dan"], "clients": ["bob"]}, ids)
    assert_equal(event, Join(n_new=2, clients=np.array([1])))
    assert event_of({"kind": "renamed", "client": "bob", "name": "eve"}, ids) is None
    assert ids.names == ["ann", "eve", "cem", "dan"]
    event = event_of({"kind": "forgotten", "clients": ["ann", "dan"]}, ids)
    assert event.kept.tolist() == [False, True, True, False]
    assert ids.names == ["eve", "cem"]
    with pytest.raises(InvalidInput, match="duplicate client id 'eve'"):
        event_of({"kind": "joined", "new": ["eve"], "clients": []}, ids)


def test_settings_survive(engine):
    engine.plan = RoundPlan(target_responses=3, over_selection="auto", late="drop", max_wait_s=9.5)
    line = json.dumps(settings_entry(engine), allow_nan=False)
    assert settings_of(json.loads(line)) == (engine.plan, 1)
