"""What every task must do, whatever it trains."""

import copy
from typing import Any

import numpy as np

from bsfl.learning import Evaluation, Task, shares

METHODS = ("n_clients", "samples", "init", "train", "aggregate", "evaluate")


def check_task(task: Task) -> None:
    """Check that a task keeps the three promises that make runs comparable.

    Equal arguments give equal results, parameters are not changed in place, and what a client
    learns does not depend on who else is in the cohort. It trains a few clients a few times.
    """
    missing = [name for name in METHODS if not hasattr(task, name)]
    assert not missing, f"a task needs {', '.join(missing)}"
    samples = np.asarray(task.samples)
    assert samples.shape == (task.n_clients,), (
        f"samples must be one number for each of {task.n_clients} clients"
    )
    assert (samples > 0).all(), "every client must hold a sample"
    cohort = np.arange(min(3, task.n_clients))
    start = task.init(0)
    kept = copy.deepcopy(start)
    assert _same(task.init(0), start), "init(0) gives another model the second time"
    updates = list(task.train(start, cohort, t=1, seed=0))
    assert _same(start, kept), "train changed the parameters that it was given"
    clients = [update.client for update in updates]
    assert clients == cohort.tolist(), (
        f"train must return {cohort.tolist()} in order, got {clients}"
    )
    again = list(task.train(start, cohort, t=1, seed=0))
    for one, other in zip(updates, again, strict=True):
        assert _same(one.params, other.params), (
            f"client {one.client} learns otherwise the second time"
        )
        assert one.loss == other.loss, f"client {one.client} reports another loss the second time"
        assert np.isfinite(one.loss), f"client {one.client} reports a loss of {one.loss}"
        assert one.samples > 0, f"client {one.client} reports {one.samples} samples"
    (alone,) = task.train(start, cohort[-1:], t=1, seed=0)
    assert _same(alone.params, updates[-1].params), (
        "what a client learns depends on who else trains"
    )
    weights = shares([update.samples for update in updates])
    model = task.aggregate(start, updates, weights)
    assert _same(start, kept), "aggregate changed the parameters that it was given"
    assert _same(task.aggregate(start, updates, weights), model), "aggregate is not repeatable"
    assert _same(task.aggregate(start, [], np.zeros(0)), start), (
        "without updates aggregate must return the parameters as they are"
    )
    found = task.evaluate(model)
    assert isinstance(found, Evaluation), f"evaluate must return an Evaluation, got {found!r}"
    assert task.evaluate(model).loss == found.loss, "evaluate gives another loss the second time"
    assert found.accuracy is None or 0 <= found.accuracy <= 1, f"accuracy is {found.accuracy}"


def _same(one: Any, other: Any) -> bool:
    """Return whether two models are the same: arrays, or lists and dicts of them."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))
