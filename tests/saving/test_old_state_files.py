"""A file of every released version loads, and the scheduler goes on as it would have then.

state_files/VERSION/ holds one file per policy and part, saved in the middle of round 19 with one
answer in, and expected.json: who owes an answer, and the cohorts of the next rounds. They were
written by that version and are never written again.
"""

import json
from pathlib import Path

import pytest

from bsfl import (
    BSFL,
    Discounted,
    Floor,
    Lognormal,
    MaxGini,
    Means,
    Observation,
    Scheduler,
    Windowed,
)
from bsfl.errors import NewerFormat
from bsfl.saving import statefile
from bsfl.saving.migrations import SCHEMA

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
    """expected.json names what a version has written; what came later has no file of it."""
    versions = list((Path(__file__).parent / "state_files").glob("*/expected.json"))
    assert versions
    for expected in versions:
        files = {path.stem for path in FILES if path.parent == expected.parent}
        assert files == set(json.loads(expected.read_text()))


def test_flags_of_schema_1_are_parts_now():
    folder = FILES[0].parent
    by_name = {path.stem: Scheduler.load(path).policy for path in folder.glob("bsfl*.bsfl")}
    assert by_name["bsfl"] == BSFL()
    assert by_name["bsfl-bernstein"] == BSFL(index=Means(radius="bernstein"))
    assert by_name["bsfl-discount"] == BSFL(index=Means(radius="none"), memory=Discounted(0.9))
    assert by_name["bsfl-window"].memory == Windowed(10)
    assert by_name["bsfl-lognormal"].index == Lognormal(quantile=0.5, optimism=1.0)
    tail = Lognormal(quantile=0.9, optimism=0.5)
    assert by_name["bsfl-lognormal-tail"] == BSFL(index=tail, tau_max=15.0)
    assert by_name["bsfl-max-gini"].alpha == MaxGini(0.1)
    ignored = by_name["bsfl-ignored-alpha"]
    assert ignored == by_name["bsfl-floor"] == BSFL(alpha=Floor(0.8)), "alpha=99 meant nothing"
    assert by_name["bsfl-ignored-optimism"] == BSFL()


def test_a_file_of_a_later_schema_is_refused(tmp_path):
    Scheduler(BSFL(), cohort_size=1).save(tmp_path / "s")
    header, arrays = statefile.read(tmp_path / "s")
    assert header["schema"] == SCHEMA
    statefile.write(tmp_path / "s", {**header, "schema": SCHEMA + 1}, arrays)
    with pytest.raises(NewerFormat, match=f"schema {SCHEMA + 1}, this bsfl reads up to {SCHEMA}"):
        Scheduler.load(tmp_path / "s")


def test_who_had_left_before_chances_were_counted_is_owed_nothing_for_it(tmp_path):
    scheduler = Scheduler(cohort_size=2, seed=0)
    scheduler.join("abcdefgh"[i] for i in range(8))
    for t in range(40):
        if t == 10:
            scheduler.leave(["h"])
        scheduler.observe(dict.fromkeys(scheduler.select(), 1.0))
    scheduler.save(tmp_path / "new")
    header, arrays = statefile.read(tmp_path / "new")
    old = {n: a for n, a in arrays.items() if not n.startswith("ledger/") and n != "sizes"}
    del header["invite"]
    statefile.write(tmp_path / "old", {**header, "schema": 2}, old)
    found = Scheduler.load(tmp_path / "old")._learned.ledger.opportunity
    assert found[7] == pytest.approx(10 * 2 / 7)
    assert found[0] == pytest.approx(40 * 2 / 7)
