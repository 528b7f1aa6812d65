"""Random lives of schedulers against a model of plain dicts: no call may half happen.

After every call that is refused, every byte that a save would write is as it was, and the error is
one of ours. After every other call, who belongs to the fleet, who owes answers in which order and
the number of the round are what the model says.
"""

import copy
import enum
import logging
import math
import random
from collections import Counter
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
from every_policy import (
    N_PLACES,
    bsfl_variants,
    knows_places,
    pace_variants,
    registered,
    saved_bytes,
)

from bsfl import Observation, Scheduler
from bsfl.errors import BsflError, InvalidInput

STEPS_REGISTERED = 4_500
"""Steps in all the lives of each registered policy."""
STEPS_BSFL = 900
STEPS_PACE = 1_800
STEPS_FEW = 60
"""Steps of each in the ordinary suite."""
STEPS_OF_A_LIFE = 300

POOL = [f"c{i:02}" for i in range(16)]
NUMBERS = list(range(-3, 13))
LARGE = [2**70 + i for i in range(8)] + [-(2**100), 5, 6, 7, 2**128 - 1, 0, 1, -1]
HUGE = 10**400
WRONG_IDS = [None, 1.5, True, b"c01", ("c01",), "x" * 1001, 2**128, -(2**128), HUGE, object()]
WRONG_NUMBERS = [
    math.nan,
    math.inf,
    -math.inf,
    -1.0,
    0.0,
    1e308,
    1e13,
    HUGE,
    -HUGE,
    "3",
    None,
    True,
]
WRONG_NUMBERS += [1j, [1.0], np.array([1.0, 2.0]), Decimal(3), np.float64("nan"), object()]
WRONG_TOLD = [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308, 1e16, HUGE, -HUGE, 1j, "x", [1.0]]
WRONG_FEATURES = [1e13, HUGE, "x", 1j, [1.0], math.inf, -1e308]
WRONG_ANSWERS = [*WRONG_NUMBERS, SimpleNamespace(latency=-1.0), SimpleNamespace(latency="x")]
WRONG_SIZES = [0, -1, 1.5, "2", HUGE, 10**16, math.nan, True, [2], np.array([1, 2])]
WRONG_INVITES = [0.5, -1.0, math.nan, math.inf, HUGE, "much", [1.2], np.array([1.2, 2.0]), True]
WRONG_INVITES += [1e100, 1e300, object()]
WRONG_GROUPS = [5, "c01", b"c01", 1.5, object(), math.nan]


class Names(str, enum.Enum):  # noqa: UP042 - a StrEnum prints as its value
    """Ids that are str and print as something else."""

    ONE = "c00"
    TWO = "c01"


class Life:
    """A scheduler, and what it must be by a model of dicts and lists."""

    def __init__(self, policy, seed, folder):
        self.dice = dice = random.Random(seed)
        self.policy, self.folder = policy, folder
        self.pool = dice.choice([POOL, POOL, NUMBERS, LARGE])
        self.m = dice.choice([1, 2, 3, 4])
        self.invite = dice.choice([1.0, 1.3, "auto"])
        places = knows_places(policy)
        self.forget_after = None if places else dice.choice([None, 3, 12])
        self.scheduler = Scheduler(
            policy,
            cohort_size=self.m,
            invite=self.invite,
            forget_after=self.forget_after,
            seed=dice.choice([0, 7, 2**200]),
        )
        self.tells_sizes = dice.random() < 0.8  # else a policy that needs them must say so
        self.n_features = dice.choice([0, 0, 2])
        self.t = 0
        self.met, self.members, self.seen = [], set(), {}  # met: in the order of joining
        self.owed = {}  # by client: rounds, oldest first; in the order of first owing
        self.counts = Counter()

    # --- moves ----------------------------------------------------------------------------------

    def live(self, steps):
        moves = {
            self.join: 4,
            self.leave: 2,
            self.forget: 1,
            self.select: 12,
            self.select_wrongly: 4,
            self.observe: 12,
            self.observe_wrongly: 6,
            self.abandon: 1,
            self.misuse: 4,
            self.save_and_load: 0.4,
            self.copy: 0.4,
        }
        drawn = self.dice.choices(list(moves), list(moves.values()), k=steps)
        for move in drawn:
            move()
            self.counts["steps"] += 1
            self.agree()

    def some(self, pool, most=None):
        pool = list(pool)
        n = self.dice.randint(0, min(len(pool), most or len(pool)))
        return self.dice.sample(pool, n)

    def told(self, n):
        """Return what may be told of clients, right."""
        told = {}
        if self.tells_sizes:
            told["samples"] = [self.dice.choice([1.0, 5, 1e12, 1e-9, 300.0]) for _ in range(n)]
        if self.dice.random() < 0.3:
            told["quality"] = [self.dice.choice([1.0, 0.5, 1e-12]) for _ in range(n)]
        if self.n_features and self.dice.random() < 0.5 and n:
            rows = [
                [self.dice.choice([1.0, -1e12, 0.0, math.nan, 3.5]) for _ in range(2)]
                for _ in range(n)
            ]
            told["features"] = rows
        return told

    def join(self):
        who = self.some(self.pool, 6)
        told = self.told(len(who))
        if who and self.dice.random() < 0.4:
            name, wrong = self.dice.choice(["samples", "quality"]), self.dice.choice(WRONG_TOLD)
            told[name] = self.dice.choice([[wrong] * len(who), [0.5] * (len(who) + 1), 0.5])
            if self.dice.random() < 0.3:
                del told[name]
                rows = [[1.0, 2.0] for _ in who]
                self.dice.choice(rows)[0] = self.dice.choice(WRONG_FEATURES)
                told["features"] = rows
            self.refused(lambda: self.scheduler.join(who, **told))
            return
        self.scheduler.join(who, **told)
        for client in who:
            self.enter(client)
            self.seen[client] = self.t + 1

    def enter(self, client):
        if client not in self.met:
            self.met.append(client)
            self.seen[client] = self.t + 1
        self.members.add(client)

    def leave(self):
        who = self.some(self.pool, 4)
        if set(who) <= set(self.met):
            self.scheduler.leave(who)
            self.members -= set(who)
        else:
            self.refused(lambda: self.scheduler.leave(who))

    def forget(self):
        who = self.some(self.met or self.pool, 3)
        if knows_places(self.policy) or not set(who) <= set(self.met):
            self.refused(lambda: self.scheduler.forget(who))
            return
        self.scheduler.forget(who)
        self.drop(who)

    def drop(self, who):
        for client in who:
            self.met.remove(client)
            self.members.discard(client)
            self.owed.pop(client, None)

    def select(self):
        available = self.dice.choice([None, self.some(self.pool), self.met and self.some(self.met)])
        if available is not None and self.dice.random() < 0.3:
            available = self.dice.choice([set, tuple, iter, dict.fromkeys])(available)
            if isinstance(available, type(iter([]))):
                available = list(available)
                named, available = available, iter(available)
            else:
                named = list(available)
        else:
            named = available if available is None else list(available)
        m, invite, sizes = self.m, self.invite, {}
        if self.dice.random() < 0.3:
            m, invite = self.dice.randint(1, 6), None
            sizes["cohort_size"] = m
        if self.dice.random() < 0.2:
            invite = sizes["invite"] = self.dice.choice(
                [1, 1.0, 1.5, "auto", 100.0, np.float64(1.1)]
            )
        before = saved_bytes(self.scheduler)
        pool = self.members if named is None else set(named)
        try:
            cohort, error = self.scheduler.select(available, **sizes), None
        except BsflError as caught:
            cohort, error = [], caught
        if error:
            assert saved_bytes(self.scheduler) == before, f"a refused select changed it: {error}"
            self.counts["refused"] += 1
            self.expect_refusal(error, m, self.members | pool)
            return
        self.counts["rounds"] += 1
        self.t += 1
        newcomers = [c for c in (named or []) if c not in self.met]
        if isinstance(available, set):
            newcomers.sort()
        for client in [*newcomers, *(named or [])]:
            self.enter(client)
        assert m <= len(self.members)
        for client in pool:
            self.seen[client] = self.t
        self.check_cohort(cohort, pool, m, invite)
        for client in cohort:
            self.owed.setdefault(client, []).append(self.t)
        if self.forget_after and self.t % math.ceil(self.forget_after / 10) == 0:
            self.drop([c for c in self.met if self.seen[c] < self.t - self.forget_after])

    def expect_refusal(self, error, m, members):
        """Check that a selection was refused for a reason."""
        assert isinstance(error, InvalidInput)
        text = str(error)
        short_of_sizes = "samples" in text and not self.tells_sizes_of_all(members)
        too_many = "must cover the fleet" in text and len(self.met) > N_PLACES
        assert len(members) < m or short_of_sizes or too_many, text

    def tells_sizes_of_all(self, members):
        table = self.scheduler._clients
        known = {c for c in table.ids if not math.isnan(table.column("samples")[table.index_of(c)])}
        return members <= known

    def check_cohort(self, cohort, pool, m, invite):
        order = [c for c in self.met if c in set(cohort)]
        assert cohort == order, "not in the order of joining, or twice"
        assert set(cohort) <= pool
        low = high = m
        if invite == "auto":
            low, high = math.ceil(round(1.3 * m, 6)), 2 * m
        elif invite is not None:
            low = high = math.ceil(round(invite * m, 6))
        low, high = min(low, len(pool)), min(high, len(pool))
        if invite == "auto" and self.mostly_late(cohort):
            low = min(m, len(pool))  # they are waited for
        if getattr(self.policy, "chooses_fewer", False):
            low = min(1, low)
        assert low <= len(cohort) <= high, (len(cohort), low, high)
        assert self.scheduler.last_round.t == self.t
        assert self.scheduler.last_round.n_available == len(pool)

    def mostly_late(self, cohort):
        rows = {row["client"]: row for row in self.scheduler.table()}
        return any(rows[client]["late"] > rows[client]["answers"] for client in cohort)

    def select_wrongly(self):
        named, sizes = None, {}
        kind = self.dice.randrange(5)
        if kind == 0:
            named = self.dice.choice(WRONG_GROUPS)
        elif kind == 1:
            named = [*self.some(self.pool), self.dice.choice(WRONG_IDS)]
            self.dice.shuffle(named)
        elif kind == 2:
            twice = self.dice.choice(self.pool)
            named = [*self.some(self.pool), twice, twice]
            self.dice.shuffle(named)
        elif kind == 3:
            sizes["cohort_size"] = self.dice.choice([*WRONG_SIZES, 17, 10**15])
        else:
            sizes["invite"] = self.dice.choice(WRONG_INVITES)
        if kind > 2 and self.dice.random() < 0.5:
            named = self.some(self.pool)
        self.refused(lambda: self.scheduler.select(named, **sizes))

    def good(self):
        outcome = self.dice.choice(["ok"] * 6 + ["timeout", "failed", "late"])
        latency = self.dice.choice([self.dice.lognormvariate(1.0, 1.0), 1e-9, 1e12, 1.0])
        if self.dice.random() < 0.2:
            return latency  # without the loss that some policies need
        return Observation(
            latency=None if outcome == "failed" and self.dice.random() < 0.5 else latency,
            outcome=outcome,
            loss=self.dice.choice([self.dice.random(), 0.0, 1e12, 1e-300, None]),
            samples=self.dice.choice([1, 300, 10**12, None]),
        )

    def observe(self):
        who = self.some(self.owed)
        self.dice.shuffle(who)
        refused = self.scheduler.observe({client: self.good() for client in who})
        assert set(refused) <= set(who)
        assert all(why.startswith("counts as failed") for why in refused.values())
        self.settle(who)
        self.counts["answers"] += len(who)

    def settle(self, who):
        for client in who:
            self.owed[client].pop(0)
            if not self.owed[client]:
                del self.owed[client]

    def observe_wrongly(self):
        waited = self.some(self.owed, 4)
        nobody = [c for c in self.some(self.pool, 4) if c not in self.owed]
        nobody += [c for c in WRONG_IDS if c is not True and self.dice.random() < 0.1]
        if self.pool is POOL:
            waited, nobody = (
                [Names(c) if c in ("c00", "c01") else c for c in g] for g in (waited, nobody)
            )
        answers = {client: self.good() for client in (*waited, *nobody)}
        bad = {client for client in waited if self.dice.random() < 0.7}
        for client in bad:
            answers[client] = self.dice.choice(WRONG_ANSWERS)
        answers = dict(self.dice.sample(list(answers.items()), len(answers)))
        if bad or nobody:
            self.refused(lambda: self.scheduler.observe(answers, strict=True))
        refused = self.scheduler.observe(answers)
        assert bad <= set(refused)
        for client, why in refused.items():
            start = "passed over" if client not in waited else "counts as failed"
            assert why.startswith(start), (client, why)
        assert set(nobody) <= set(refused)
        self.settle(waited)
        self.counts["wrong answers"] += len(bad) + len(nobody)

    def abandon(self):
        who = self.dice.choice([None, self.some(self.met, 3), self.some(self.pool, 3)])
        if who is None:
            self.scheduler.abandon()
            self.owed = {}
        elif set(who) <= set(self.met):
            self.scheduler.abandon(who)
            for client in who:
                self.owed.pop(client, None)
        else:
            self.refused(lambda: self.scheduler.abandon(who))

    def misuse(self):
        """Call what takes clients with what are none."""
        one = self.scheduler
        call = self.dice.choice([one.join, one.leave, one.forget, one.abandon, one.observe])
        wrong = self.dice.choice(WRONG_GROUPS)
        if call is not one.observe and self.dice.random() < 0.6:
            who = self.some(self.pool, 3)
            wrong = [*who, self.dice.choice(WRONG_IDS)]
            if call in (one.join, one.leave, one.forget) and who and self.dice.random() < 0.5:
                wrong = [*who, who[0]]
        self.refused(lambda: call(wrong))

    def save_and_load(self):
        path = self.folder / f"{self.counts['saves']}.bsfl"
        self.scheduler.save(path)
        loaded = Scheduler.load(path)
        path.unlink()
        self.counts["saves"] += 1
        assert saved_bytes(loaded) == saved_bytes(self.scheduler)
        self.same_next_cohort(loaded)
        self.scheduler = loaded

    def copy(self):
        other = copy.deepcopy(self.scheduler)
        assert saved_bytes(other) == saved_bytes(self.scheduler)
        self.same_next_cohort(other)
        self.scheduler = other
        self.counts["copies"] += 1

    def same_next_cohort(self, other):
        before, cohorts = saved_bytes(other), []
        for one in map(copy.deepcopy, (self.scheduler, other)):
            try:
                cohorts.append(one.select())
            except InvalidInput as error:
                cohorts.append(str(error))
        assert cohorts[0] == cohorts[1]
        assert saved_bytes(other) == before, "a copy's selection changed the original"

    # --- verdicts -------------------------------------------------------------------------------

    def refused(self, call):
        """Check that a call is refused by one of our errors, and that nothing happened."""
        before = saved_bytes(self.scheduler)
        with pytest.raises(BsflError) as error:
            call()
        assert saved_bytes(self.scheduler) == before, f"a refused call changed it: {error.value}"
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 1_000
        self.counts["refused"] += 1

    def agree(self):
        assert self.scheduler.t == self.t
        assert self.scheduler.clients == [c for c in self.met if c in self.members]
        assert self.scheduler.outstanding == list(self.owed)
        for client, rounds in self.owed.items():
            assert self.scheduler._owed(client)[1] == rounds[0]


@pytest.fixture(autouse=True)
def _no_word_of_refused_answers():
    logger = logging.getLogger("bsfl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


def play(policies, steps, folder):
    """Play each policy for so many steps, in several lives, and print what happened."""
    counts = Counter()
    for number, (name, policy) in enumerate(policies.items()):
        for start in range(0, steps, STEPS_OF_A_LIFE):
            seed = number * 1_000 + start // STEPS_OF_A_LIFE
            life = Life(policy, seed, folder)
            try:
                life.live(min(STEPS_OF_A_LIFE, steps - start))
            except BaseException as error:
                error.add_note(f"{name}, seed {seed}, step {life.counts['steps']}")
                raise
            counts += life.counts
    print(f"{len(policies)} policies:", ", ".join(f"{n:,} {what}" for what, n in counts.items()))
    assert counts["steps"] == len(policies) * steps
    assert counts["rounds"] > 0.05 * counts["steps"]


def test_short_lives_agree_with_a_model(fast_folder):
    few = dict(list(bsfl_variants().items())[::17])
    play(registered() | few, STEPS_FEW, fast_folder)


@pytest.mark.attack
@pytest.mark.parametrize("name", sorted(registered()))
def test_lives_of_every_policy_agree_with_a_model(name, fast_folder):
    play({name: registered()[name]}, STEPS_REGISTERED, fast_folder)


@pytest.mark.attack
@pytest.mark.parametrize("part", range(6))
def test_lives_of_bsfl_with_every_part_agree_with_a_model(part, fast_folder):
    play(dict(list(bsfl_variants().items())[part::6]), STEPS_BSFL, fast_folder)


@pytest.mark.attack
def test_lives_of_pace_with_every_setting_agree_with_a_model(fast_folder):
    play(pace_variants(), STEPS_PACE, fast_folder)
