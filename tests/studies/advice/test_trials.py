"""Which setting is recommended, and what a simulated setting counts."""

import numpy as np
import pytest

from bsfl.simulation import SimulatedClients, simulate
from bsfl.simulation.latency import Flaky, lognormal
from bsfl.studies.advice.trials import Counting, Setting, Trial, recommended, run_setting


def trial(name, seconds, share, fair_count=1e9):
    """Return a trial with these seconds by seed."""
    numbers = {"for_as_many_s": seconds, "mean_round_s": seconds, "fair_count": [fair_count]}
    numbers |= {"min_participation": [share], "gini": [0.1]}
    setting = Setting(policy=name, cohort_size=2, deadline_s=9.0)
    return Trial(setting, 10, {k: np.array(v, dtype=float) for k, v in numbers.items()})


def test_the_fastest_that_keeps_the_floor_is_recommended():
    trials = [
        trial("a", [5.0, 5.1], 0.5),
        trial("b", [7.0, 7.1], 0.85),
        trial("c", [9.0, 9.1], 0.9),
    ]
    assert [recommended(trials, floor) for floor in (0.4, 0.8, 0.9)] == trials
    assert recommended(trials, 0.99) is trials[2], "none does: the fairest"


def test_of_two_that_are_tied_the_fairer_is_recommended():
    quick = trial("a", [10.0, 12.0, 11.0], 0.80)
    # by seed 2 % slower, 3 % faster, 2 % slower: 1 is inside the interval
    alike = trial("b", [10.2, 11.64, 11.22], 0.95)
    # by seed 5.0, 5.2 and 5.4 % slower: a difference, though seeds differ by more
    slower = trial("c", [10.5, 12.624, 11.594], 0.99)
    assert recommended([quick, alike, slower], 0.5) is alike
    assert recommended([quick, slower], 0.5) is quick
    one_seed = [trial("a", [10.0], 0.8), trial("b", [11.5], 0.9)]
    assert recommended(one_seed, 0.5) is one_seed[0], "15 % count without an interval"


def test_a_floor_is_kept_up_to_one_round():
    few = trial("a", [1.0, 1.0], 0.75, fair_count=8.0)  # of 8 rounds a client gets 6 or 7
    assert few.keeps(0.8)
    assert not few.keeps(0.9)


def test_no_setting_saves_more_than_all():
    slow, quick = trial("random", [8.0] * 3, 0.7), trial("pace", [0.5, 3.0, 7.9], 0.2)
    assert quick.saved(slow).high == 1.0


def clients(seconds, lost=0.0, deadline_s=10.0):
    n_clients = len(seconds)
    latency = lognormal(np.array(seconds, dtype=float), np.zeros(n_clients))
    latency = Flaky(latency, np.broadcast_to(lost, n_clients))
    return SimulatedClients(latency=latency, tau_min=0.1, tau_max=deadline_s)


def test_an_unresponsive_client_was_selected_and_a_response_that_is_dropped_was_not():
    fleet = clients([1.0, 2.0, 8.0, 1.0], lost=[0.0, 0.0, 0.0, 1.0])
    found = run_setting(fleet, Setting(policy="random", cohort_size=4, deadline_s=10.0), 20)
    # the last is busy until its invitation expires, after twice the deadline: no deficit by then
    assert found["min_participation"] == pytest.approx(1.0)
    assert found["mean_round_s"] > 8.0
    cut = run_setting(fleet, Setting(policy="random", cohort_size=4, deadline_s=5.0), 20)
    assert cut["min_participation"] == 0.0, "8 s is within the log's deadline"


def test_time_is_counted_for_as_many_responses():
    setting = Setting(policy="random", cohort_size=2, deadline_s=5.0)
    found = run_setting(clients([1.0, 8.0]), setting, 10)
    # every other round has both: one response in 5 s; the others have the first alone: 1 s
    assert found["responses"] == 1.0
    assert found["for_as_many_s"] == pytest.approx(2 * found["mean_round_s"])


def test_counting_changes_nothing():
    fleet = clients(np.arange(1.0, 10.0))
    setting = Setting(policy="pace", cohort_size=2, deadline_s=10.0)
    counted = Counting(setting.made(), fleet)
    plain, seen = (
        [r.cohort for r in simulate(one, fleet, cohort_size=2, rounds=30)]
        for one in (setting.made(), counted)
    )
    assert plain == seen
    assert counted.n_kept == 60
