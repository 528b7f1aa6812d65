"""A folder in which a model and its scheduler outlive the server."""

import io
import json
import logging
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

from bsfl.errors import CorruptFile, InvalidInput
from bsfl.files import replace_file
from bsfl.integrations.flower.keeping import Attempts, StateFile

MODEL, SCHEDULER = "model.npz", "scheduler.bsfl"

_LOG = logging.getLogger("flwr")


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
