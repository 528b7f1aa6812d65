"""What an Observation accepts."""

import numpy as np
import pytest

from bsfl import Observation
from bsfl.errors import InvalidInput
from bsfl.records import PART, in_parts


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"latency": 1.0, "outcome": "slow"},
            "outcome must be one of ok, timeout, failed, late, got 'slow'",
        ),
        ({}, "latency is required when the outcome is 'ok', got None"),
        ({"outcome": "late"}, "latency is required when the outcome is 'late', got None"),
        ({"outcome": "timeout"}, "latency is required when the outcome is 'timeout', got None"),
        ({"latency": 1.0, "loss": float("nan")}, "loss must be a finite number"),
        ({"latency": 1.0, "samples": 0}, "samples must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_observations(settings, message):
    with pytest.raises(InvalidInput, match=message):
        Observation(**settings)
    Observation(outcome="failed")


def test_parts_of_a_large_fleet_add_up_to_the_whole():
    x, y = np.arange(2.0 * PART + 1), np.arange(2 * PART + 1)[::-1]
    sizes = []

    def compute(x, y):
        sizes.append(len(x))
        return np.sqrt(x) + y

    assert np.array_equal(in_parts(compute, x, y), np.sqrt(x) + y)
    assert sizes == [PART, PART, 1]
