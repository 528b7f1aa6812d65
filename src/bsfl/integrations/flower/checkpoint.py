"""What outlives the server: the scheduler's file, or a folder with the model as well."""

import inspect
import io
import json
import logging
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result, Strategy

from bsfl.errors import CorruptFile, FileInUse, InvalidInput
from bsfl.files import replace_file
from bsfl.scheduler import Scheduler

_LOG = logging.getLogger("flwr")

MODEL, SCHEDULER = "model.npz", "scheduler.bsfl"


class Attempts:
    """Writes to a file; a disk that is full costs what was learned, not the training.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_failing = False

    def attempt(self, write: Callable[[], None]) -> None:
        """Write; say once that it fails, and once that it works again."""
        try:
            write()
        except (OSError, FileInUse) as error:
            if not self._is_failing:
                _LOG.warning("bsfl: %s cannot be written, training goes on: %s", self.path, error)
            self._is_failing = True
            return
        if self._is_failing:
            _LOG.warning("bsfl: %s is written again", self.path)
        self._is_failing = False


class StateFile:
    """Restores a scheduler, and saves it after every round.

    Attributes:
        path: The file; absolute from the start, whatever becomes of the working folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise InvalidInput(
                f"state_path must be a file in a folder that exists, got {str(self.path)!r}"
            )
        self._attempts = Attempts(self.path)

    def restored(self, scheduler: Scheduler) -> Scheduler:
        """Return what the file knows under the given settings; one that is not new stays."""
        if scheduler.t:
            return scheduler
        if len(scheduler.clients):
            raise InvalidInput(
                "a scheduler with a state_path must be new, as a file would replace it; register "
                "clients afterwards, with the scheduler of Selected"
            )
        if not self.path.exists():
            return scheduler
        restored = Scheduler.load(self.path, policy=scheduler.policy)
        restored.cohort_size = scheduler.cohort_size
        restored.tell_like(scheduler)
        restored.abandon()
        _LOG.info("bsfl: %s goes on after round %d", self.path, restored.t)
        return restored

    def save(self, scheduler: Scheduler) -> None:
        """Write the scheduler; a failure costs a warning."""
        self._attempts.attempt(lambda: scheduler.save(self.path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a checkpoint holds.

    Attributes:
        server_round: After which round it was written.
        arrays: The model.
        strategy: What the strategy remembered in arrays, such as the moments of FedAdam.
    """

    server_round: int
    arrays: ArrayRecord
    strategy: dict[str, Any] = field(default_factory=dict)


class Checkpoint:
    """Writes the model after every round, and reads it when the server starts again.

    Attributes:
        folder: Holds model.npz and scheduler.bsfl; made if it is not there.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser().absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"checkpoint must be a folder: {error}") from None
        self._model = self.folder / MODEL
        self._attempts = Attempts(self._model)
        self._before: dict[str, Any] = {}

    @property
    def state_path(self) -> Path:
        """Where the scheduler is kept."""
        return self.folder / SCHEDULER

    def begin(self, strategy: Strategy) -> Saved | None:
        """Give a strategy back what it remembered, if something was saved, and return that."""
        self._before = dict(vars(strategy))
        saved = self.load()
        for name, value in saved.strategy.items() if saved else ():
            if name in self._before:
                setattr(strategy, name, value)
        return saved

    def save(self, server_round: int, arrays: ArrayRecord, strategy: Strategy) -> None:
        """Write a model and what its strategy remembers; a failure costs a warning."""
        header: dict[str, Any] = {"server_round": server_round, "model": [], "strategy": {}}
        parts: dict[str, npt.NDArray[Any]] = {}
        for k, (name, array) in enumerate(arrays.items()):
            header["model"].append([name, array.dtype, list(array.shape), array.stype])
            parts[f"model-{k}"] = np.frombuffer(array.data, dtype=np.uint8)
        for name, value in vars(strategy).items():
            kind, held = _taken_apart(value)
            if held and value is not self._before.get(name):  # it was changed by training
                header["strategy"][name] = [kind, list(held)]
                parts |= {f"strategy-{name}-{k}": a for k, a in enumerate(held.values())}
        parts["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        file = io.BytesIO()
        np.savez(file, **parts)  # type: ignore[arg-type]
        self._attempts.attempt(lambda: replace_file(self._model, file.getbuffer()))

    def load(self) -> Saved | None:
        """Return what was saved; None if there is nothing yet."""
        if not self._model.exists():
            return None
        try:
            with self._model.open("rb") as file, np.load(file, allow_pickle=False) as parts:
                header = json.loads(parts["header"].tobytes())
                saved = Saved(
                    server_round=int(header["server_round"]),
                    arrays=ArrayRecord(
                        {
                            name: Array(dtype, tuple(shape), stype, parts[f"model-{k}"].tobytes())
                            for k, (name, dtype, shape, stype) in enumerate(header["model"])
                        }
                    ),
                    strategy={
                        name: _put_together(
                            kind, {key: parts[f"strategy-{name}-{k}"] for k, key in enumerate(keys)}
                        )
                        for name, (kind, keys) in header["strategy"].items()
                    },
                )
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise CorruptFile(
                f"{self._model} is no model that was saved here ({error}); nothing was loaded"
            ) from None
        _LOG.info("bsfl: %s goes on after round %d", self._model, saved.server_round)
        return saved


def _taken_apart(value: Any) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """Return a value's kind and its arrays: one, a list, or by name; none if it is not such."""
    kind, held = "", {}
    if isinstance(value, np.ndarray):
        kind, held = "array", {"": value}
    elif isinstance(value, ArrayRecord):
        kind, held = "record", {name: array.numpy() for name, array in value.items()}
    elif isinstance(value, list):
        kind, held = "list", {str(k): one for k, one in enumerate(value)}
    elif isinstance(value, dict):
        kind, held = "dict", value
    is_plain = all(
        isinstance(key, str) and isinstance(one, np.ndarray) and one.dtype != object
        for key, one in held.items()
    )
    return kind, held if is_plain else {}


def _put_together(kind: str, held: dict[str, npt.NDArray[Any]]) -> Any:
    if kind == "array":
        return held[""]
    if kind == "record":
        return ArrayRecord({name: Array(array) for name, array in held.items()})
    return list(held.values()) if kind == "list" else held


def kept_in(
    checkpoint: str | os.PathLike[str] | None, state_path: str | os.PathLike[str] | None
) -> tuple[Checkpoint | None, StateFile | None]:
    """Return the folder and the scheduler's file, which is in it if there is one."""
    if checkpoint is None:
        return None, None if state_path is None else StateFile(state_path)
    if state_path is not None:
        raise InvalidInput("checkpoint keeps the scheduler, too; leave out state_path")
    folder = Checkpoint(checkpoint)
    return folder, StateFile(folder.state_path)


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
