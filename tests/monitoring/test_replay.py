"""A journal replays to the same state, to the last bit, and to the same next cohort."""

import json

import numpy as np
import pytest

from bsfl import Observation, Pace, RoundPlan, Scheduler, UniformRandom
from bsfl._core.rounds import CONFIRMED
from bsfl.errors import BsflError, InvalidInput
from bsfl.monitoring import Journal, read_journal
from bsfl.policies import POLICIES
from saved_state import differences, saved_state

IDS = [f"phone-{i:02}" for i in range(16)]
POSITIONAL = ("genie", "rbcs-f")
"""Policies with settings by position, of which no client can be forgotten."""


SETTINGS = {
    "cohort_size": [1, 2, 3],
    "over_selection": [1.0, 1.5, "auto"],
    "max_open_rounds": [2, 3, 4],
}
CALLS = [
    *("select", "observe") * 4,
    *("close", "join", "describe", "rename", "forget", "leave", "abandon", "offline", "online"),
    *SETTINGS,
]


class Life:
    """A scheduler that lives through everything that a journal can hold."""

    def __init__(self, policy, folder, *, seed=0, can_forget=True, **settings):
        self.now, self.rng, self.can_forget = 100.0, np.random.default_rng(seed), can_forget
        self.folder, self.journal, self.n_joined = folder, folder / "journal", 12
        forget_after = 12 if can_forget else None
        settings = {"cohort_size": 3, "over_selection": 1.5, "max_open_rounds": 3} | settings
        settings |= {"max_staleness": 4, "seed": 5, "forget_after": forget_after}
        self.scheduler = Scheduler(policy, **settings, clock=lambda: self.now)
        self.write()
        self.empty = self.save("empty")
        self.scheduler.join(IDS[:12], samples=[100.0 + i for i in range(12)])

    def write(self):
        self.scheduler.write_journal(Journal(self.journal, availability=True))

    def save(self, name="state"):
        self.scheduler.save(self.folder / name)
        return self.folder / name

    def restart(self, file):
        """Go on with a file, as after the end of the process."""
        self.scheduler = Scheduler.load(file, clock=lambda: self.now)
        self.write()

    def live(self, steps):
        """Make so many calls, and select."""
        for _ in range(steps):
            self.now += float(self.rng.integers(1, 20))
            self.call(str(self.rng.choice(CALLS)))
        self.now += 1.0
        self.scheduler.select()  # the journal ends now

    def call(self, name):
        """Make one call, with some of the clients that it may name."""
        scheduler, rng, members = self.scheduler, self.rng, self.scheduler.clients
        few = [c for c in members if rng.random() < 0.1]
        if name == "select":
            here = None if rng.random() < 0.5 else [c for c in members if rng.random() < 0.8]
            scheduler.select(here, now_s=self.now if rng.random() < 0.5 else None)
        elif name == "observe":
            pending = [c for c in scheduler.in_flight if rng.random() < 0.4]
            number = None if pending or not scheduler.pending() else scheduler.pending()[-1]
            responses = {client: self.response() for client in pending}
            assert scheduler.observe(responses, round=number) == {}
        elif name == "close":
            for one in scheduler._engine.rounds:
                fresh = [scheduler._ids.names[k] for k in one.cohort[one.fresh].tolist()]
                given = [{}, {"discard": True}, {"aggregated": fresh[1:]}][rng.integers(3)]
                if one.status != CONFIRMED and rng.random() < 0.5:
                    scheduler.close(one.number, now_s=self.now, **given)
        elif name == "join" and len(scheduler._ids) < len(IDS):
            self.n_joined += 1
            scheduler.join([f"new-{self.n_joined}", *few])
            scheduler.register(f"new-{self.n_joined}", samples=50.0, quality=0.5)
        elif name == "describe":
            features = [{"os": str(rng.choice(["a", "b"])), "ram": float(len(c))} for c in few]
            scheduler.join(few, samples=[7.5] * len(few), features=features)
        elif name == "rename":
            for client in few[:1]:
                scheduler.rename(client, f"renamed-{client[-20:]}")
        elif name == "forget" and self.can_forget and len(members) > 9:
            scheduler.forget(few[:1])
        elif name == "leave" and len(members) > 9:
            scheduler.leave(few[:1])
        elif name in ("abandon", "offline", "online"):
            getattr(scheduler, name)(few)
        elif name in SETTINGS:
            setattr(scheduler, name, SETTINGS[name][rng.integers(3)])

    def response(self):
        return Observation(
            latency_s=float(self.rng.lognormal(1.0, 1.0)),
            outcome=str(self.rng.choice(["ok"] * 6 + ["timeout", "failed"])),
            loss=float(self.rng.random()),
            samples=int(self.rng.integers(1, 50)),
        )

    def replay(self, start, policy=None):
        return Scheduler.replay(self.journal, start=start, policy=policy, clock=lambda: self.now)

    def differences(self, other, but=()):
        """Return what another scheduler remembers differently, or its next cohorts."""
        found = set(differences(saved_state(other), saved_state(self.scheduler))) - set(but)
        for _ in range(5):
            cohort = self.scheduler.select()
            if other.select() != cohort:
                found.add("cohort")
            responses = {c: Observation(latency_s=2.0, loss=0.5, samples=9) for c in cohort}
            for one in (self.scheduler, other):
                one.observe(responses, round=cohort.round)
        return found


@pytest.mark.parametrize("late", ["apply", "drop"])
@pytest.mark.parametrize("name", list(POLICIES))
def test_a_journal_replays_to_the_same_state(name, late, tmp_path):
    policy = POLICIES.make(name, **POLICIES[name].example)
    life = Life(policy, tmp_path, late=late, can_forget=name not in POSITIONAL)
    life.live(40)
    start = life.save()
    life.live(100)
    assert not life.differences(life.replay(start))


@pytest.mark.parametrize("seed", range(4))
def test_everything_that_can_happen_has_happened(seed, tmp_path):
    """The test above covers every kind of entry, rounds that are open, late and discarded."""
    life = Life(Pace(), tmp_path, seed=seed, lifetime_s=30.0)
    life.live(300)
    entries = list(read_journal(life.journal))
    assert {entry["kind"] for entry in entries} == {
        *("opened", "responses", "closed", "joined", "described", "left", "availability"),
        *("abandoned", "forgotten", "renamed", "features", "settings"),
    }
    assert any(entry["is_late"] for entry in entries if entry["kind"] == "responses")
    assert any(entry["is_discarded"] for entry in entries if entry["kind"] == "closed")
    again, nothing_to_do = life.replay(life.empty), life.replay(life.save())
    assert differences(saved_state(nothing_to_do), saved_state(again)) == []
    assert not life.differences(again)


def test_a_replayed_scheduler_resumes_where_the_journal_ends(tmp_path):
    life = Life(Pace(), tmp_path)
    life.live(80)
    life.scheduler = life.replay(life.empty)
    life.write()
    life.live(80)
    numbers = [entry["seq"] for entry in read_journal(life.journal)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert not life.differences(life.replay(life.empty))


@pytest.mark.parametrize("steps", [90, 20])  # fewer than those that were lost
def test_after_a_restart_from_an_older_file_the_later_events_count(steps, tmp_path):
    life = Life(Pace(), tmp_path)
    life.live(60)
    older = life.save("older")
    life.live(60)  # these are lost with the process
    life.restart(older)
    life.live(steps)
    numbers = [entry["seq"] for entry in read_journal(life.journal)]
    assert len(set(numbers)) < len(numbers), "some numbers are there twice"
    since_restart = ["rounds/opened_s"]  # the time between file and restart counts
    assert not life.differences(life.replay(older), but=since_restart)


def test_a_custom_policy_is_given_again(tmp_path):
    class Custom(UniformRandom):
        pass

    life = Life(Custom(), tmp_path)
    life.live(50)
    with pytest.raises(BsflError, match="custom policy"):
        life.replay(life.empty)
    assert not life.differences(life.replay(life.empty, policy=Custom()))


def test_the_plan_is_replayed(tmp_path):
    life = Life(UniformRandom(), tmp_path)
    life.scheduler.plan = plan = RoundPlan(
        target_responses=2, over_selection="auto", deadline_s=60.0, min_responses=1, late="drop"
    )
    life.scheduler.max_open_rounds = 7
    again = life.replay(life.empty)
    assert (again.plan, again.max_open_rounds) == (plan, 7)


def test_invitations_are_as_old_as_they_were_after_a_restart_on_another_machine(tmp_path):
    life = Life(UniformRandom(), tmp_path, over_selection=1.0)
    life.scheduler.select(IDS[:3])  # at 100 s
    start = life.save()
    life.now = 120.0
    life.scheduler.select(IDS[3:6])
    later = life.save("later")
    life.now = 5.0  # the clock of the other machine, when 20 s are over
    life.restart(later)
    life.now = 7.0
    life.scheduler.select(IDS[6:9])
    for file in (start, later):
        again = life.replay(file)
        assert [cohort.opened_s for cohort in again.pending()] == [-15.0, 5.0, 7.0]
        assert again.pending() == life.scheduler.pending()
    life.now = 50.0  # of a third machine
    again = life.replay(start)
    again.save(tmp_path / "replayed")
    life.now = 60.0
    for one in (again, Scheduler.load(tmp_path / "replayed", clock=lambda: life.now - 10.0)):
        assert [50.0 - cohort.opened_s for cohort in one.pending()] == [22.0, 2.0, 0.0]


def test_invitations_are_as_old_as_they_were_by_a_time_of_the_callers_own(tmp_path):
    """The caller counts from 0 and passes its time; the clock stands still at 100 s."""
    life = Life(UniformRandom(), tmp_path, over_selection=1.0)
    life.scheduler.select(IDS[:3], now_s=7.0)
    start = life.save()
    life.scheduler.select(IDS[3:6], now_s=9.0)
    assert [cohort.opened_s for cohort in life.replay(start).pending()] == [7.0, 9.0]


# --- journals that cannot be replayed ---------------------------------------------------------------


def test_without_changes_of_availability_the_error_names_what_is_missing(tmp_path):
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=tmp_path / "journal")
    scheduler.join(IDS)
    scheduler.save(tmp_path / "s")
    scheduler.select(IDS[:5])
    with pytest.raises(InvalidInput, match=r"lacks event 2\b.*Journal\(path, availability=True\)"):
        Scheduler.replay(tmp_path / "journal", start=tmp_path / "s")
    scheduler = Scheduler(UniformRandom(), cohort_size=2, journal=tmp_path / "steady")
    scheduler.save(tmp_path / "empty")
    scheduler.join(IDS)
    cohort = scheduler.select()
    again = Scheduler.replay(tmp_path / "steady", start=tmp_path / "empty")
    assert again.pending() == [cohort], "availability has not changed"


def test_a_journal_that_begins_after_the_file_is_rejected(tmp_path):
    life = Life(Pace(), tmp_path)
    start = life.save()  # the clients have joined, with their samples
    life.live(60)
    lines = life.journal.read_bytes().splitlines(keepends=True)
    life.journal.write_bytes(b"".join(lines[:1] + lines[9:]))
    with pytest.raises(InvalidInput, match="lacks events 3 to 9"):
        life.replay(start)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("opened", lambda e: e.update(invited=["nobody"])),
        ("opened", lambda e: e.pop("busy")),
        ("responses", lambda e: e.update(round=99)),
        ("responses", lambda e: e.update(outcome=["late"])),
        ("responses", lambda e: e.update(latency_s=[[]])),
        ("closed", lambda e: e.update(aggregated=7)),
        ("joined", lambda e: e.update(new=["phone-00"])),
        ("described", lambda e: e.update(attributes={"samples": ["x"]})),
        ("settings", lambda e: e.update(plan={})),
        ("settings", lambda e: e.update(kind="of a later version")),
    ],
)
def test_a_damaged_entry_is_named(kind, change, tmp_path):
    scheduler = Scheduler(
        UniformRandom(), cohort_size=2, journal=Journal(tmp_path / "journal", availability=True)
    )
    scheduler.save(tmp_path / "s")
    scheduler.join(IDS[:4], samples=[1.0] * 4)
    scheduler.cohort_size = 1
    scheduler.observe(dict.fromkeys(scheduler.select(), 2.0))
    entries = list(read_journal(tmp_path / "journal"))
    at = [entry["kind"] for entry in entries].index(kind)
    change(entries[at])
    lines = [json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries]
    (tmp_path / "journal").write_text("".join(lines))
    with pytest.raises(InvalidInput, match=r"event \d of .*journal cannot be replayed"):
        Scheduler.replay(tmp_path / "journal", start=tmp_path / "s")
