"""Intervals, with scipy's distributions as the independent oracle."""

import math
import sys

import numpy as np
import pytest

pytest.importorskip("scipy", reason="statistics need the extra sim")

from scipy import stats

from bsfl.errors import MissingExtra
from bsfl.experiments.statistics import Interval, band, interval, prediction_interval


@pytest.mark.parametrize("n", [2, 3, 5, 31, 200])
def test_the_interval_is_students(n):
    values = np.random.default_rng(n).normal(3.0, 2.0, n)
    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    found = interval(values)
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), low, high))


def test_95_of_100_intervals_hold_the_true_mean_or_the_next_value():
    """Of 2,000 samples the share that covers it has a standard error of 0.5 points."""
    samples = np.random.default_rng(0).normal(1.0, 1.0, (5, 2000))
    mean, half = band(samples[:4])
    assert np.mean(np.abs(mean - 1.0) <= half) == pytest.approx(0.95, abs=0.015)
    hits = []
    for *known, following in samples.T:
        found = prediction_interval(known)
        hits.append(found.low <= following <= found.high)
    assert np.mean(hits) == pytest.approx(0.95, abs=0.015)


def test_one_seed_or_a_diverged_run_has_no_interval():
    assert interval([3.0]).as_json() == {"mean": 3.0, "low": None, "high": None}
    assert interval([3.0]).text(".1f") == "3.0"
    diverged = interval([1.0, math.inf])
    assert diverged.text() == ""
    assert diverged.as_json() == {"mean": None, "low": None, "high": None}


def test_a_band_is_an_interval_at_every_point():
    curves = np.array([[1.0, 2.0], [3.0, 8.0], [2.0, 5.0]])
    mean, half = band(curves)
    for point, column in enumerate(curves.T):
        assert interval(column).high == pytest.approx(mean[point] + half[point])


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [(1234.5, 4.5, "1,234 ± 4"), (12.34, 0.56, "12.3 ± 0.6"), (0.12345, 0.001, "0.123 ± 0.001")],
)
def test_a_mean_has_three_digits_and_its_interval_as_many_decimals(mean, half, text):
    assert Interval(mean, mean - half, mean + half).text() == text


def test_without_scipy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(MissingExtra, match=r"this needs scipy.*sim"):
        interval([1.0, 2.0])
