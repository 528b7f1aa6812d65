"""Saved state: nothing is lost, nothing broken is loaded, and kill -9 at any time is survived."""

import json
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

from bsfl import BSFL, Genie, RoundPlan, Scheduler, UCBIndex, UniformRandom
from bsfl.errors import CorruptFile, NewerFormat, NotAStateFile, StateFileError, TruncatedFile
from bsfl.persistence import statefile
from saved_state import saved_state


def played(policy=None, ids=None, rounds=6):
    policy = policy or BSFL(alpha=4.0, tau_max=30.0)
    scheduler = Scheduler(policy, cohort_size=3, seed=2, clock=lambda: 0.0)
    scheduler.join(ids or [f"c{i}" for i in range(8)], samples=np.arange(1.0, 9.0))
    for _ in range(rounds):
        cohort = scheduler.select()
        scheduler.observe({c: 1.0 + k for k, c in enumerate(cohort[:-1])})
    return scheduler


def fingerprint(scheduler):
    return scheduler.policy, scheduler.last_round, saved_state(scheduler)


@pytest.mark.parametrize(
    "ids",
    [
        [f"c{i}" for i in range(8)],
        list(range(8)),
        [-1, 2**63, 2**64 - 1, 3, 4, 5, 6, 7],
        ["", "ü", "日本", "a\nb", "\ud800", "x" * 1000, "<b>", "null"],
    ],
)
@pytest.mark.parametrize("answered", [True, False])
def test_everything_comes_back(tmp_path, ids, answered):
    scheduler = played(ids=ids)
    cohort = scheduler.select()
    if answered:
        scheduler.observe({cohort[0]: 2.0})
    scheduler.leave([ids[1]])
    scheduler.save(tmp_path / "s.bsfl")
    twin = Scheduler.load(tmp_path / "s.bsfl", clock=lambda: 0.0)
    assert fingerprint(twin) == fingerprint(scheduler)
    assert twin.select() == scheduler.select()
    assert fingerprint(twin) == fingerprint(scheduler)


def test_a_scheduler_that_met_nobody(tmp_path):
    Scheduler(BSFL(), cohort_size=2).save(tmp_path / "s.bsfl")
    twin = Scheduler.load(tmp_path / "s.bsfl")
    assert (twin.round, twin.clients, twin.last_round) == (0, [], None)
    assert len(twin.select(available=["a", "b", "c"])) == 2


def test_saving_replaces_and_leaves_nothing_behind(tmp_path):
    scheduler = played()
    for _ in range(3):
        scheduler.select()
        scheduler.save(str(tmp_path / "s.bsfl"))
    assert [p.name for p in tmp_path.iterdir()] == ["s.bsfl"]
    assert Scheduler.load(tmp_path / "s.bsfl").round == scheduler.round


def test_a_policy_with_own_functions_must_be_given_again(tmp_path):
    def own_radius(count, *, t, m, variance):
        return np.zeros(len(count))

    path = tmp_path / "s.bsfl"
    policy = BSFL(index=UCBIndex(confidence_width=own_radius))
    scheduler = played(policy)
    scheduler.save(path)
    with pytest.raises(
        StateFileError,
        match=r"with a custom policy or custom functions \(bsfl\); call Scheduler.load",
    ):
        Scheduler.load(path)
    loaded = Scheduler.load(path, policy=policy, clock=lambda: 0.0)
    assert fingerprint(loaded) == fingerprint(scheduler)


def test_another_policy_starts_from_what_is_known_of_the_clients(tmp_path):
    played().save(tmp_path / "s.bsfl")
    other = Scheduler.load(tmp_path / "s.bsfl", policy=UniformRandom())
    assert (other.policy, other.round, len(other.clients)) == (UniformRandom(), 6, 8)
    assert Scheduler.load(tmp_path / "s.bsfl", policy=BSFL(alpha=9.0)).policy.alpha == 9.0


def test_numpy_settings_can_be_saved(tmp_path):
    scheduler = played(BSFL(alpha=np.float32(2), beta=np.int64(2)))
    scheduler.save(tmp_path / "s.bsfl")
    assert Scheduler.load(tmp_path / "s.bsfl").policy == BSFL(alpha=2.0, beta=2)


def test_array_settings_come_back(tmp_path):
    scheduler = played(Genie(mean_speed=np.linspace(0.1, 0.9, 8)))
    scheduler.save(tmp_path / "s.bsfl")
    twin = Scheduler.load(tmp_path / "s.bsfl")
    assert np.array_equal(twin.policy.mean_speed, scheduler.policy.mean_speed)


def test_a_truncated_file_at_every_length(tmp_path):
    path, cut = tmp_path / "s.bsfl", tmp_path / "cut.bsfl"
    played().save(path)
    content = path.read_bytes()
    for length in range(1, len(content), 7):
        cut.write_bytes(content[:length])
        with pytest.raises(
            TruncatedFile, match=r"is truncated \(expected [\d,]+ bytes, found [\d,]+\)"
        ):
            Scheduler.load(cut)
    cut.write_bytes(b"")
    with pytest.raises(NotAStateFile, match="is not a saved scheduler"):
        Scheduler.load(cut)


def test_every_changed_byte_is_noticed(tmp_path):
    path, bad = tmp_path / "s.bsfl", tmp_path / "bad.bsfl"
    played().save(path)
    content = path.read_bytes()
    for position in range(0, len(content), 5):
        changed = bytearray(content)
        changed[position] ^= 0x40
        bad.write_bytes(changed)
        with pytest.raises(StateFileError, match="nothing was loaded"):
            Scheduler.load(bad)
    bad.write_bytes(content + b"x")
    with pytest.raises(CorruptFile, match="checksum differs"):
        Scheduler.load(bad)


def test_a_newer_format_and_foreign_files(tmp_path):
    path = tmp_path / "s.bsfl"
    played().save(path)
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, len(statefile.MAGIC), statefile.FORMAT + 1)
    path.write_bytes(content)
    with pytest.raises(NewerFormat, match="has format 2, this bsfl reads up to 1; upgrade bsfl"):
        Scheduler.load(path)
    path.write_text(json.dumps({"hello": 1}))
    with pytest.raises(NotAStateFile, match="is not a saved scheduler"):
        Scheduler.load(path)
    with pytest.raises(FileNotFoundError):
        Scheduler.load(tmp_path / "missing.bsfl")


def test_no_pickle_is_involved(tmp_path, monkeypatch):
    import pickle

    def refuse(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads"):
        monkeypatch.setattr(pickle, name, refuse)
    played().save(tmp_path / "s.bsfl")
    Scheduler.load(tmp_path / "s.bsfl")


ROUNDS_FOR_EVER = """
import sys
from bsfl import BSFL, RoundPlan, Scheduler
scheduler = Scheduler(BSFL(alpha=4.0), cohort_size=50, seed=1)
scheduler.join(range(200_000))
while True:
    scheduler.observe({k: 1.0 + k % 7 for k in scheduler.select()})
    for _ in range(2):  # nearly all the time is spent saving, so that is where the kill comes
        scheduler.save(sys.argv[1])
"""


@pytest.mark.slow
def test_killed_at_any_moment_the_file_is_whole(tmp_path):
    path, rng = tmp_path / "s.bsfl", np.random.default_rng(0)
    reached = []
    for n_saves in range(1, 21):
        path.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-c", ROUNDS_FOR_EVER, str(path)])
        try:
            deadline, saves = time.monotonic() + 120, set()
            while len(saves) < n_saves:
                assert time.monotonic() < deadline, "the process saves no more"
                assert process.poll() is None
                if path.exists():
                    saves.add(path.stat().st_mtime_ns)
                time.sleep(0.001)
            time.sleep(float(rng.uniform(0, 0.02)))
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        scheduler = Scheduler.load(path)
        # what was saved is a moment between two rounds of one and the same history
        assert scheduler.state.memory.observed.sum() == 50 * scheduler.round
        assert scheduler.in_flight == []
        reached.append(scheduler.round)
    assert len(set(reached)) > 1, "the kills came at different moments"


def test_every_number_of_a_plan_is_saved(tmp_path):
    plan = RoundPlan(
        target_responses=2,
        over_selection=1.5,
        deadline_s=3.0,
        min_responses=1,
        late="drop",
        max_staleness=4,
        lifetime_s=7.0,
        max_wait_s=5.0,
    )
    scheduler = Scheduler(cohort_size=1)
    scheduler.plan = plan
    scheduler.save(tmp_path / "s.bsfl")
    assert Scheduler.load(tmp_path / "s.bsfl").plan == plan
