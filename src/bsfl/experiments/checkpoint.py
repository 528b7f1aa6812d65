"""A task that saves what it trained, so that an interrupted run does not train it again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np

import bsfl
from bsfl.errors import StateFileError
from bsfl.learning.task import Evaluation, Params, Task, Update
from bsfl.persistence import statefile
from bsfl.types import FloatArray, IntArray

SAVE_EVERY_S = 20.0
"""Wall-clock seconds between two saves; a killed run loses these and the round it was in."""
FORMAT = 2


@dataclass(slots=True, weakref_slot=True, eq=False)
class Version:
    """A model by the number of its version; without parameters where a later one is on disk."""

    number: int
    params: Params


class Checkpointed:
    """A Task with parameters of the form {layer: {name: array}}.

    A new one replays what is on disk without training: it returns the saved losses and evaluations
    in the same order, and restores the models that were in use when it was saved. Those are the
    last one and, where clients start from older ones, the others that are in flight.
    """

    def __init__(self, task: Task, path: Path, save_every_s: float = SAVE_EVERY_S) -> None:
        self.task, self.path, self.save_every_s = task, path, save_every_s
        self.n_clients, self.samples = task.n_clients, task.samples
        self.n_trained, self.on_disk, self.saved_at = 0, -1, time.monotonic()
        self.losses: list[FloatArray] = []
        self.evaluations: dict[int, Evaluation] = {}
        self.saved: dict[int, Params] = {}
        self.in_use: WeakValueDictionary[int, Version] = WeakValueDictionary()

    def init(self, seed: int) -> Version:
        """Return an untrained model, after reading what is on disk."""
        if not self.losses and self.path.exists():
            self._load()
        return self._version(0, self.task.init(seed))

    def train(self, params: Version, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        """Train clients, or return the saved losses where they were trained before."""
        if self.n_trained < len(self.losses):
            saved = zip(clients, self.losses[self.n_trained], self.samples[clients], strict=True)
            updates = [
                Update(client=int(client), params=None, loss=float(loss), samples=int(n))
                for client, loss, n in saved
            ]
        else:
            updates = list(self.task.train(params.params, clients, t=t, seed=seed))
            self.losses.append(np.array([update.loss for update in updates]))
        self.n_trained += 1
        return updates

    def aggregate(self, params: Version, updates: Sequence[Update], weights: FloatArray) -> Version:
        """Return the next model; save it from time to time."""
        number = params.number + 1
        if number <= self.on_disk:
            return self._version(number, self.saved.get(number))
        learned = [
            replace(one, params=one.params.params) if isinstance(one.params, Version) else one
            for one in updates
        ]
        made = self._version(number, self.task.aggregate(params.params, learned, weights))
        if time.monotonic() - self.saved_at > self.save_every_s:
            self._save(number)
        return made

    def evaluate(self, params: Version) -> Evaluation:
        if params.number not in self.evaluations:
            self.evaluations[params.number] = self.task.evaluate(params.params)
        return self.evaluations[params.number]

    def _version(self, number: int, params: Params) -> Version:
        made = Version(number, params)
        self.in_use[number] = made
        return made

    def _save(self, number: int) -> None:
        evaluated = list(self.evaluations)
        arrays = {
            "trained": np.array([len(losses) for losses in self.losses], dtype=np.int64),
            "losses": np.concatenate([*self.losses, np.zeros(0)]),
            "evaluated": np.array(evaluated, dtype=np.int64),
            "evaluations": np.array([_as_row(self.evaluations[v]) for v in evaluated]),
        }
        layers = {
            f"{version}/{layer}/{name}": np.asarray(array)
            for version, model in self.in_use.items()
            for layer, arrays_of in model.params.items()
            for name, array in arrays_of.items()
        }
        header = {"version": bsfl.__version__, "format": FORMAT, "model": number}
        statefile.write(self.path, header, arrays | layers)
        self.saved_at = time.monotonic()

    def _load(self) -> None:
        """Restore what is on disk, unless it is damaged or from another version."""
        try:
            header, arrays = statefile.read(self.path)
        except StateFileError:
            return
        if (header.get("version"), header.get("format")) != (bsfl.__version__, FORMAT):
            return
        ends = np.cumsum(arrays.pop("trained"))
        self.losses = np.split(arrays.pop("losses"), ends)[: len(ends)]
        self.on_disk = header["model"]
        rows = arrays.pop("evaluations")
        self.evaluations = {
            v: _from_row(row) for v, row in zip(arrays.pop("evaluated").tolist(), rows, strict=True)
        }
        for key, array in arrays.items():
            version, layer, name = key.split("/")
            self.saved.setdefault(int(version), {}).setdefault(layer, {})[name] = array


def _as_row(evaluation: Evaluation) -> list[float]:
    """Return loss, accuracy (nan for none) and the accuracy of every label."""
    if evaluation.accuracy is None or evaluation.label_accuracy is None:
        return [evaluation.loss, np.nan]
    return [evaluation.loss, evaluation.accuracy, *evaluation.label_accuracy.tolist()]


def _from_row(row: FloatArray) -> Evaluation:
    loss, accuracy, *labels = row.tolist()
    if np.isnan(accuracy):
        return Evaluation(loss=loss)
    return Evaluation(loss=loss, accuracy=accuracy, label_accuracy=np.array(labels))
