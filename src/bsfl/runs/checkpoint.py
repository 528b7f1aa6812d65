"""A task that keeps on disk what it trained, so that a cut run does not train it again."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import bsfl
from bsfl import statefile
from bsfl.errors import StateFileError
from bsfl.learning.task import Evaluation, Params, Task, Update
from bsfl.records import FloatArray, IntArray

SAVE_EVERY_S = 20.0
"""Seconds of real time between two saves; a killed run loses these and the round it was in."""


class Checkpointed:
    """A Task with parameters of the form {layer: {name: array}}, asked for rounds 1, 2, 3, ...

    A new one goes through the rounds that are on disk without training: it tells the losses and
    evaluations of then, without parameters, and has the model again after the last of them.
    """

    def __init__(self, task: Task, path: Path, save_every_s: float = SAVE_EVERY_S) -> None:
        self.task, self.path, self.save_every_s = task, path, save_every_s
        self.n_clients, self.samples = task.n_clients, task.samples
        self.t, self.n_on_disk, self.saved_at = 0, 0, time.monotonic()
        self.losses: list[FloatArray] = []
        self.evaluations: dict[int, Evaluation] = {}
        self.params: Params = None

    def init(self, seed: int) -> Params:
        if not self.losses and self.path.exists():
            self._load()
        return self.task.init(seed)

    def train(self, params: Params, clients: IntArray, *, t: int, seed: int) -> Sequence[Update]:
        if t > len(self.losses) + 1:
            raise ValueError(f"rounds must come in order: {t} after {len(self.losses)}")
        self.t = t
        if t <= self.n_on_disk:
            told = zip(clients, self.losses[t - 1], self.samples[clients], strict=True)
            return [
                Update(client=int(client), params=None, loss=float(loss), samples=int(n))
                for client, loss, n in told
            ]
        if time.monotonic() - self.saved_at > self.save_every_s:
            self._save(params)
        updates = self.task.train(params, clients, t=t, seed=seed)
        self.losses.append(np.array([update.loss for update in updates]))
        return updates

    def aggregate(self, params: Params, updates: Sequence[Update], weights: FloatArray) -> Params:
        """Return the next model; None as long as a later one is on disk."""
        if self.t > self.n_on_disk:
            return self.task.aggregate(params, updates, weights)
        return self.params if self.t == self.n_on_disk else None

    def evaluate(self, params: Params) -> Evaluation:
        if self.t not in self.evaluations:
            self.evaluations[self.t] = self.task.evaluate(params)
        return self.evaluations[self.t]

    def _save(self, params: Params) -> None:
        arrays = {
            "trained": np.array([len(losses) for losses in self.losses], dtype=np.int64),
            "losses": np.concatenate([*self.losses, np.zeros(0)]),
            "evaluated": np.array(list(self.evaluations), dtype=np.int64),
            "evaluations": np.array([_as_row(test) for test in self.evaluations.values()]),
        }
        for layer, layer_arrays in params.items():
            arrays |= {f"{layer}/{name}": np.asarray(a) for name, a in layer_arrays.items()}
        statefile.write(self.path, {"version": bsfl.__version__}, arrays)
        self.saved_at = time.monotonic()

    def _load(self) -> None:
        """Take over what is on disk, unless it is damaged or from another version."""
        try:
            header, arrays = statefile.read(self.path)
        except StateFileError:
            return
        if header.get("version") != bsfl.__version__:
            return
        ends = np.cumsum(arrays.pop("trained"))
        self.losses = np.split(arrays.pop("losses"), ends)[: len(ends)]
        self.n_on_disk = len(ends)
        tests = map(_from_row, arrays.pop("evaluations"))
        self.evaluations = dict(zip(arrays.pop("evaluated").tolist(), tests, strict=True))
        self.params = {}
        for key, array in arrays.items():
            layer, name = key.split("/")
            self.params.setdefault(layer, {})[name] = array


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
