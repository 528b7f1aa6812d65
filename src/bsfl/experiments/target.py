"""A quality of the model, and how long it took to get there."""

import math
from dataclasses import dataclass

import numpy as np

from bsfl.experiments.results import Records, Results
from bsfl.types import BoolArray, FloatArray

ACCURACY_PART, LOSS_TIMES = 0.97, 2.0
"""The target where a scenario names none, relative to what the worst policy ends with."""


@dataclass(frozen=True, slots=True)
class Target:
    """A "test_accuracy" to be reached from below, or a "test_loss" from above."""

    column: str
    value: float

    def __str__(self) -> str:
        return f"{self.value:.1%}" if self.column == "test_accuracy" else f"loss {self.value:.3g}"


def evaluated(records: Records) -> Records:
    """Return the records of rounds after which the model was evaluated."""
    is_evaluated: BoolArray = ~np.isnan(records["test_loss"])
    return records[is_evaluated]


def at_the_end(results: Results, label: str, column: str) -> FloatArray:
    """Return a column of the last evaluation, seed by seed."""
    return np.array([evaluated(records)[column][-1] for records in results.records(label)])


def at_equal_times(results: Results, label: str, column: str) -> FloatArray:
    """Return a column of the last evaluation before the time up to which every policy played."""
    ends = [[r["clock_s"][-1] for r in results.records(k)] for k in results.scenario.policies]
    values = []
    for records, time_s in zip(results.records(label), np.min(ends, axis=0), strict=True):
        seen = evaluated(records)
        values.append(seen[column][max(0, np.searchsorted(seen["clock_s"], time_s, "right") - 1)])
    return np.array(values)


def find_target(results: Results) -> Target:
    """Return the target of a scenario that trains.

    It is the scenario's target_accuracy. Where that is not given, it is a part of the lowest
    accuracy that a policy ends with, or twice the highest loss where there is no accuracy, so that
    all can reach it.
    """
    learning = results.scenario.learning
    assert learning
    if learning.target_accuracy is not None:
        return Target("test_accuracy", learning.target_accuracy)

    def ends(column: str) -> list[float]:
        return [float(at_the_end(results, k, column).mean()) for k in results.scenario.policies]

    accuracies = ends("test_accuracy")
    if not np.isnan(accuracies).any():
        return Target("test_accuracy", round(ACCURACY_PART * min(accuracies), 3))
    finite = [loss for loss in ends("test_loss") if math.isfinite(loss)]  # some may diverge
    return Target("test_loss", LOSS_TIMES * max(finite, default=0.0))


def time_to(results: Results, label: str, target: Target) -> FloatArray:
    """Return when the target was first reached, in virtual time, by seed; infinite if never."""
    sign = 1 if target.column == "test_accuracy" else -1
    times = []
    for records in results.records(label):
        is_reached = sign * records[target.column] >= sign * target.value
        times.append(min(records["clock_s"][is_reached], default=np.inf))
    return np.array(times)
