"""A file of every released version loads, and the scheduler goes on as it would have then.

state_files/VERSION/ holds one file per policy and part, saved in the middle of round 19 with one
answer in, and expected.json: who owes an answer, and the cohorts of the next rounds. They were
written by that version and are never written again.
"""

import json
from pathlib import Path

import pytest

from bsfl import Observation, Scheduler

FILES = sorted((Path(__file__).parent / "state_files").glob("*/*.bsfl"))


def answer(client, t):
    """What a client shows in round t: a failure, a timeout, or a time, a loss and samples."""
    k = int(client.removeprefix("phone-"))
    if (k + t) % 11 == 0:
        return Observation(outcome="failed")
    if (k + t) % 7 == 0:
        return Observation(latency=20.0, outcome="timeout")
    latency = 1.0 + k + (t * (k + 3)) % 5 / 4
    return Observation(latency=latency, loss=2.0 + (k * 7 + t) % 5 / 3, samples=5 + k)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_file_chooses_the_same_next_cohorts(path):
    expected = json.loads((path.parent / "expected.json").read_text())[path.stem]
    scheduler = Scheduler.load(path)
    assert scheduler.t == 19
    assert scheduler.last_round.cohort[1:] == tuple(expected["answers_due"])
    scheduler.observe({client: answer(client, 19) for client in expected["answers_due"]})
    for cohort in expected["next_cohorts"]:
        assert scheduler.select() == cohort
        scheduler.observe({client: answer(client, scheduler.t) for client in cohort})


def test_there_is_a_file_of_every_policy():
    from bsfl.policies import POLICIES

    known = {path.stem for path in FILES}
    assert all(any(name.startswith(policy) for name in known) for policy in POLICIES)
