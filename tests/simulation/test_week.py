"""Phone-like weeks: what a public week of 710 phones showed, with stated margins."""

from pathlib import Path

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation import phone_week
from bsfl.simulation.intervals import DAY_S, HOUR_S, WEEK_S

DEVICES = Path(__file__).parents[3] / "shared" / "devices"
N = 20_000


@pytest.fixture(scope="module")
def week():
    return phone_week(N, np.random.default_rng(0))


def online(week, clock_s):
    return np.mean(~np.isnan(week.online_s(clock_s)))


def shares(week):
    """The share of the week that each client is online."""
    client = np.repeat(np.arange(week.n_clients), np.diff(week.offsets))
    return np.bincount(client, week.end - week.start, week.n_clients) / WEEK_S


def by_hour(week):
    """The share of clients that are online, by hour of the day: four looks an hour, seven days."""
    looks = np.arange(0.0, WEEK_S, HOUR_S / 4) + HOUR_S / 8
    return np.reshape([online(week, look) for look in looks], (7, 24, 4)).mean(axis=(0, 2))


def test_phones_stay_longer_the_longer_they_have_been_there(week):
    lasted = week.end - week.start
    for after, chance in ((0, 0.41), (60, 0.66), (1800, 0.90)):
        there = lasted[lasted > after]
        # a share of n visits, at least 200,000, scatters by at most 0.5 / sqrt(n) = 0.0011
        assert len(there) > 200_000
        assert np.mean(there > after + 300) == pytest.approx(chance, abs=0.005)


def test_phones_are_online_as_often_as_real_ones(week):
    share = shares(week)
    # the shares scatter by 0.12, their mean by 0.12 / sqrt(20,000) = 0.0008
    assert share.mean() == pytest.approx(0.095, abs=0.0035)
    # at the median their density is about 5: 0.5 / 5 / sqrt(20,000) = 0.0007
    assert np.median(share) == pytest.approx(0.055, abs=0.003)
    assert share.max() < 1.0


def test_phones_are_online_by_night_rather_than_by_day(week):
    hours = by_hour(week)
    # an hour scatters by 0.002 beside the mean's 0.0008, and the extreme one is chosen of several
    assert hours.max() == pytest.approx(0.137, abs=0.007)
    assert hours.min() == pytest.approx(0.065, abs=0.007)
    assert hours.argmax() in (4, 5), "around five in the morning"
    assert hours.argmin() in range(15, 19)


def test_the_week_has_no_seam(week):
    """Around its end and its beginning phones are online as around any other midnight."""
    for clock_s in (-1800.0, -1.0, 0.0, 600.0, 1800.0, 3600.0):
        here, there = (week.online_s(WEEK_S + clock_s + day * DAY_S) for day in (0, 3))
        here, there = here[~np.isnan(here)], there[~np.isnan(there)]
        # about 2,000 of 20,000 at each look: both scatter by 0.0021, their difference by 0.003
        assert len(here) / N == pytest.approx(len(there) / N, abs=0.012)
        # nearly all are on long visits: the median age scatters by about 2,847 / sqrt(2,000) = 64,
        # the difference by 90 seconds
        assert np.median(here) == pytest.approx(np.median(there), abs=360)
    assert online(week, WEEK_S - 1) == pytest.approx(online(week, 0), abs=0.001)


def test_the_clock_may_start_at_any_hour():
    five, zero = (phone_week(50, np.random.default_rng(3), start_hour=hour) for hour in (5, 0))
    assert np.array_equal(five.online_s(0), zero.online_s(5 * HOUR_S), equal_nan=True)
    with pytest.raises(InvalidInput, match="start_hour must be between 0 and 24, got -1"):
        phone_week(50, np.random.default_rng(3), start_hour=-1)


def test_one_client_alone_has_a_week():
    """It may never come."""
    for seed in range(20):
        assert phone_week(1, np.random.default_rng(seed)).n_clients == 1


@pytest.mark.skipif(not DEVICES.is_dir(), reason="the recorded devices are not here")
def test_weeks_are_like_those_of_other_real_phones(week):
    """FLASH's 723 phones are online less often, 8 %; in proportion they are alike."""
    state = np.load(DEVICES / "flash_availability_30min_723dev.npz")["state"]
    known = state >= 0
    n_known = known.sum(axis=0)
    real = ((state == 1).sum(axis=0) / np.maximum(n_known, 1))[n_known > 0]
    made = shares(week)
    for q in (70, 80, 90, 95, 99):
        ratio = np.percentile(made, q) / made.mean() * real.mean() / np.percentile(real, q)
        assert ratio == pytest.approx(1.0, abs=0.15)
    # the record begins at midnight; five whole days of half hours
    steps = (state == 1)[:240].sum(axis=1) / known[:240].sum(axis=1)
    real_hours = steps.reshape(5, 24, 2).mean(axis=(0, 2))
    assert np.corrcoef(real_hours, by_hour(week))[0, 1] > 0.8
