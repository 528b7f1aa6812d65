"""Models that clients still work on, and answers to old ones brought up to date."""

from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, RecordDict

from bsfl.errors import InvalidInput

Model = dict[str, npt.NDArray[Any]]


class Versions:
    """The versions of a model that somebody may still answer to.

    Attributes:
        number: How often the model has been changed.
        arrays: The model as it is now.
    """

    def __init__(self, arrays: ArrayRecord, number: int = 0) -> None:
        self.number, self.arrays = number, arrays
        self._models: dict[int, Model] = {number: _numbers(arrays)}

    def advance(self, arrays: ArrayRecord | None, in_use: set[int]) -> None:
        """Take the next version, None for one that equals the last; forget what nobody works on."""
        self.number += 1
        if arrays is None:
            self._models[self.number] = self._models[self.number - 1]
        else:
            self.arrays, self._models[self.number] = arrays, _numbers(arrays)
        kept = in_use | {self.number}
        self._models = {k: model for k, model in self._models.items() if k in kept}

    def rebased(self, content: RecordDict, base: int, weight: float = 1.0) -> RecordDict:
        """Return an answer to version `base` as if it had been given to the one of now.

        w = w_now + weight (w_client - w_base), so that what the client learned is neither lost nor
        undoes what others have learned since. Whole numbers count something, and are not weighed.

        Args:
            content: What the client sent; it must hold one model like the one that it got.
            base: The version that it got.
            weight: How much its update counts.
        """
        records = content.array_records
        if len(records) != 1:
            raise InvalidInput(f"it has {len(records)} ArrayRecords instead of one")
        ((name, record),) = records.items()
        now, before, sent = self._models[self.number], self._models[base], _numbers(record)
        if {k: a.shape for k, a in sent.items()} != {k: a.shape for k, a in before.items()}:
            raise InvalidInput("its arrays are not those of the model that it was sent")
        if base == self.number and weight == 1.0:
            return content
        moved = {k: _moved(now[k], sent[k], before[k], weight) for k in sent}
        kept = {key: value for key, value in content.items() if key != name}
        return RecordDict({**kept, name: ArrayRecord({k: Array(a) for k, a in moved.items()})})


def _moved(
    now: npt.NDArray[Any], sent: npt.NDArray[Any], base: npt.NDArray[Any], weight: float
) -> npt.NDArray[Any]:
    if sent.dtype == np.bool_:
        return sent
    update = sent.astype(np.int64) - base if sent.dtype.kind in "iu" else weight * (sent - base)
    return np.asarray(now + update).astype(sent.dtype)


def _numbers(arrays: ArrayRecord) -> Model:
    try:
        return {name: array.numpy() for name, array in arrays.items()}
    except Exception as error:  # whatever the bytes of a stranger do to numpy
        raise InvalidInput(f"its arrays cannot be read: {error}") from None
