"""A strategy's start that goes on where a checkpoint ends."""

import inspect
import logging
from collections.abc import Callable
from typing import Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from bsfl.errors import InvalidInput
from bsfl.integrations.flower.checkpoint import Saved

_LOG = logging.getLogger("flwr")


def resumed(start: Callable[..., Any], saved: Saved | None, *args: Any, **kwargs: Any) -> Any:
    """Call start with the model that was saved, for the rounds that are left.

    Rounds of the result, and those that evaluate_fn is told, count on from the saved one.
    """
    if saved is None:
        return start(*args, **kwargs)
    bound = inspect.signature(start).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    if not {"initial_arrays", "num_rounds"} <= given.keys():
        raise InvalidInput(
            "a checkpoint needs a strategy whose start() takes initial_arrays and num_rounds"
        )
    n_before = saved.server_round
    if n_before >= given["num_rounds"]:
        _LOG.info("bsfl: all %d rounds were played; nothing is left to do", n_before)
        result = Result()
        result.arrays = saved.arrays
        return result
    given["initial_arrays"], given["num_rounds"] = saved.arrays, given["num_rounds"] - n_before
    if given.get("evaluate_fn") is not None:
        given["evaluate_fn"] = _later(given["evaluate_fn"], n_before)
    result = start(*bound.args, **bound.kwargs)
    if isinstance(result, Result):
        _shift(result, n_before)
    return result


def _later(
    evaluate: Callable[[int, ArrayRecord], MetricRecord | None], n_before: int
) -> Callable[[int, ArrayRecord], MetricRecord | None]:
    return lambda server_round, arrays: evaluate(server_round + n_before, arrays)


def _shift(result: Result, n_before: int) -> None:
    for name in (
        "train_metrics_clientapp",
        "evaluate_metrics_clientapp",
        "evaluate_metrics_serverapp",
    ):
        history = getattr(result, name)
        setattr(result, name, {t + n_before: metrics for t, metrics in history.items()})
