"""Versions: models that clients still train on, and updates of old versions that are rebased."""

from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, RecordDict

from bsfl.errors import InvalidInput

Model = dict[str, npt.NDArray[Any]]


class Versions:
    """The current version of a model, and earlier ones that clients still train on.

    Attributes:
        number: How often the model has been changed.
        arrays: The current model.
    """

    def __init__(self, arrays: ArrayRecord, number: int = 0) -> None:
        self.number, self.arrays = number, arrays
        self._models: dict[int, Model] = {number: _numbers(arrays)}

    def advance(self, arrays: ArrayRecord | None, in_use: set[int]) -> None:
        """Add the next version, None for one that equals the last; drop those not in use."""
        self.number += 1
        if arrays is None:
            self._models[self.number] = self._models[self.number - 1]
        else:
            self.arrays, self._models[self.number] = arrays, _numbers(arrays)
        kept = in_use | {self.number}
        self._models = {k: model for k, model in self._models.items() if k in kept}

    def rebased(self, content: RecordDict, base: int, weight: float = 1.0) -> RecordDict:
        """Return the content of a reply to version `base` as a reply to the current version.

        w = w_now + weight (w_client - w_base), so that the update of the client is neither lost nor
        reverts what others have learned since. Integers are counters, and are not weighted.

        Args:
            content: What the client sent; it must hold one model like that of the version.
            base: The version that the client trained on.
            weight: Weight of its update.
        """
        records = content.array_records
        if len(records) != 1:
            raise InvalidInput(f"it has {len(records)} ArrayRecords instead of one")
        ((name, record),) = records.items()
        now, before, sent = self._models[self.number], self._models[base], _numbers(record)
        if {k: a.shape for k, a in sent.items()} != {k: a.shape for k, a in before.items()}:
            raise InvalidInput("its arrays differ in name or shape from those of the model")
        if base == self.number and weight == 1.0:
            return content
        rebased = {k: _rebased(now[k], sent[k], before[k], weight) for k in sent}
        others = {key: value for key, value in content.items() if key != name}
        return RecordDict({**others, name: ArrayRecord({k: Array(a) for k, a in rebased.items()})})


def _rebased(
    now: npt.NDArray[Any], sent: npt.NDArray[Any], base: npt.NDArray[Any], weight: float
) -> npt.NDArray[Any]:
    if sent.dtype == np.bool_:
        return sent
    update = sent.astype(np.int64) - base if sent.dtype.kind in "iu" else weight * (sent - base)
    return np.asarray(now + update).astype(sent.dtype)


def _numbers(arrays: ArrayRecord) -> Model:
    try:
        return {name: array.numpy() for name, array in arrays.items()}
    except Exception as error:  # any error that malformed bytes cause in numpy
        raise InvalidInput(f"its arrays cannot be read: {error}") from None
