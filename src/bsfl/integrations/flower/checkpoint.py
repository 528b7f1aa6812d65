"""Files that outlive the server: the scheduler's state file, or a folder with the model as well."""

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
from bsfl.persistence import replace_file
from bsfl.scheduler import Scheduler

_LOG = logging.getLogger("flwr")

MODEL, SCHEDULER = "model.npz", "scheduler.bsfl"


class SafeWriter:
    """Writes to a file; a full disk costs the file, not the training.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_failing = False

    def write(self, write: Callable[[], None]) -> None:
        """Write; log once that it fails, and once that it works again."""
        try:
            write()
        except (OSError, FileInUse) as error:
            if not self._is_failing:
                _LOG.warning("bsfl: %s cannot be written, training continues: %s", self.path, error)
            self._is_failing = True
            return
        if self._is_failing:
            _LOG.warning("bsfl: %s is written again", self.path)
        self._is_failing = False


class StateFile:
    """Restores a scheduler, and saves it after every round.

    Attributes:
        path: The file; absolute, so that the working folder may change.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise InvalidInput(
                f"state_path must be a file in a folder that exists, got {str(self.path)!r}"
            )
        self._writer = SafeWriter(self.path)

    def restored(self, scheduler: Scheduler) -> Scheduler:
        """Return the scheduler in the file with the settings of a new one; a used one stays."""
        if scheduler.round:
            return scheduler
        if len(scheduler.clients):
            raise InvalidInput(
                "a scheduler with a state_path must be new, as a file would replace it; register "
                "clients afterwards, with the scheduler of Selected"
            )
        if not self.path.exists():
            return scheduler
        restored = Scheduler.load(self.path, policy=scheduler.policy)
        restored.plan, restored.max_open_rounds = scheduler.plan, scheduler.max_open_rounds
        restored.publish_like(scheduler)
        restored.abandon()
        _LOG.info("bsfl: %s resumes after round %d", self.path, restored.round)
        return restored

    def save(self, scheduler: Scheduler) -> None:
        """Write the scheduler; a failure is logged."""
        self._writer.write(lambda: scheduler.save(self.path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The content of a checkpoint.

    Attributes:
        server_round: The round after which it was written.
        arrays: The model.
        strategy: Attributes of the strategy that hold arrays, such as the moments of FedAdam.
    """

    server_round: int
    arrays: ArrayRecord
    strategy: dict[str, Any] = field(default_factory=dict)


class Checkpoint:
    """Writes the model after every round, and reads it when the server starts again.

    Attributes:
        folder: Holds model.npz and scheduler.bsfl; created if it does not exist.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser().absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"checkpoint must be a folder: {error}") from None
        self._model = self.folder / MODEL
        self._writer = SafeWriter(self._model)
        self._before: dict[str, Any] = {}

    @property
    def state_path(self) -> Path:
        """The state file of the scheduler."""
        return self.folder / SCHEDULER

    def begin(self, strategy: Strategy) -> Saved | None:
        """Load what was saved, restore the attributes of a strategy from it, and return it."""
        self._before = dict(vars(strategy))
        saved = self.load()
        for name, value in saved.strategy.items() if saved else ():
            if name in self._before:
                setattr(strategy, name, value)
        return saved

    def save(self, server_round: int, arrays: ArrayRecord, strategy: Strategy) -> None:
        """Write a model and the arrays of its strategy; a failure is logged."""
        header: dict[str, Any] = {"server_round": server_round, "model": [], "strategy": {}}
        parts: dict[str, npt.NDArray[Any]] = {}
        for k, (name, array) in enumerate(arrays.items()):
            header["model"].append([name, array.dtype, list(array.shape), array.stype])
            parts[f"model-{k}"] = np.frombuffer(array.data, dtype=np.uint8)
        for name, value in vars(strategy).items():
            kind, arrays_in = _flatten(value)
            if arrays_in and value is not self._before.get(name):  # it was changed by training
                header["strategy"][name] = [kind, list(arrays_in)]
                parts |= {f"strategy-{name}-{k}": a for k, a in enumerate(arrays_in.values())}
        parts["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        file = io.BytesIO()
        np.savez(file, **parts)  # type: ignore[arg-type]
        self._writer.write(lambda: replace_file(self._model, file.getbuffer()))

    def load(self) -> Saved | None:
        """Return what was saved; None: nothing yet."""
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
                        name: _unflatten(
                            kind, {key: parts[f"strategy-{name}-{k}"] for k, key in enumerate(keys)}
                        )
                        for name, (kind, keys) in header["strategy"].items()
                    },
                )
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise CorruptFile(
                f"{self._model} is not a model of a checkpoint ({error}); nothing was loaded"
            ) from None
        _LOG.info("bsfl: %s resumes after round %d", self._model, saved.server_round)
        return saved


def _flatten(value: Any) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """Return the kind of a value and its arrays by key; no arrays if it holds anything else."""
    kind, arrays = "", {}
    if isinstance(value, np.ndarray):
        kind, arrays = "array", {"": value}
    elif isinstance(value, ArrayRecord):
        kind, arrays = "record", {name: array.numpy() for name, array in value.items()}
    elif isinstance(value, list):
        kind, arrays = "list", {str(k): item for k, item in enumerate(value)}
    elif isinstance(value, dict):
        kind, arrays = "dict", value
    is_plain = all(
        isinstance(key, str) and isinstance(item, np.ndarray) and item.dtype != object
        for key, item in arrays.items()
    )
    return kind, arrays if is_plain else {}


def _unflatten(kind: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    if kind == "array":
        return arrays[""]
    if kind == "record":
        return ArrayRecord({name: Array(array) for name, array in arrays.items()})
    return list(arrays.values()) if kind == "list" else arrays


def files_of(
    checkpoint: str | os.PathLike[str] | None, state_path: str | os.PathLike[str] | None
) -> tuple[Checkpoint | None, StateFile | None]:
    """Return the checkpoint and the state file, which is in the checkpoint's folder if any."""
    if checkpoint is None:
        return None, None if state_path is None else StateFile(state_path)
    if state_path is not None:
        raise InvalidInput("checkpoint saves the scheduler, too; leave out state_path")
    folder = Checkpoint(checkpoint)
    return folder, StateFile(folder.state_path)


def start_from(start: Callable[..., Any], saved: Saved | None, *args: Any, **kwargs: Any) -> Any:
    """Call start with the model that was saved, for the remaining rounds.

    Rounds of the result, and those that evaluate_fn gets, are numbered from the saved one on.
    """
    if saved is None:
        return start(*args, **kwargs)
    bound = inspect.signature(start).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    if not {"initial_arrays", "num_rounds"} <= arguments.keys():
        raise InvalidInput(
            "a checkpoint needs a strategy whose start() takes initial_arrays and num_rounds"
        )
    n_before = saved.server_round
    if n_before >= arguments["num_rounds"]:
        _LOG.info("bsfl: all %d rounds are done; nothing is left to do", n_before)
        result = Result()
        result.arrays = saved.arrays
        return result
    arguments["initial_arrays"] = saved.arrays
    arguments["num_rounds"] -= n_before
    if arguments.get("evaluate_fn") is not None:
        arguments["evaluate_fn"] = _shifted(arguments["evaluate_fn"], n_before)
    result = start(*bound.args, **bound.kwargs)
    if isinstance(result, Result):
        _shift_rounds(result, n_before)
    return result


def _shifted(
    evaluate: Callable[[int, ArrayRecord], MetricRecord | None], n_before: int
) -> Callable[[int, ArrayRecord], MetricRecord | None]:
    return lambda server_round, arrays: evaluate(server_round + n_before, arrays)


def _shift_rounds(result: Result, n_before: int) -> None:
    for name in (
        "train_metrics_clientapp",
        "evaluate_metrics_clientapp",
        "evaluate_metrics_serverapp",
    ):
        history = getattr(result, name)
        shifted = {number + n_before: metrics for number, metrics in history.items()}
        setattr(result, name, shifted)
