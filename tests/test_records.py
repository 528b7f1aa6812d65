"""What an Observation accepts."""

import pytest

from bsfl import Observation
from bsfl.errors import InvalidInput


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
