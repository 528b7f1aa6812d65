"""Who holds which samples, and in which order a client meets them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from bsfl.errors import InvalidInput
from bsfl.types import IntArray, Rng

IndexArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Holdings:
    """Which rows of the training data each client holds, end to end in one array.

    Attributes:
        rows: The rows of client 0, then those of client 1, and so on.
        start: Where each client's rows start, and at last where they end.
        most: How many samples the client with the most holds.
    """

    rows: IndexArray
    start: IntArray
    most: int

    @classmethod
    def of(cls, clients: Sequence[npt.ArrayLike], n_rows: int) -> Self:
        """Return the holdings of clients given as one list of rows each."""
        if len(clients) == 0:
            raise InvalidInput("clients must name at least one client, got none")
        lists = [np.asarray(rows) for rows in clients]
        for k, rows in enumerate(lists):
            if rows.ndim != 1 or len(rows) == 0:
                raise InvalidInput(f"client {k} must hold a list of at least one sample")
            if not np.issubdtype(rows.dtype, np.integer):
                raise InvalidInput(f"client {k} must hold whole row numbers, got {rows.dtype}")
        start = np.cumsum([0, *(len(rows) for rows in lists)])
        rows = np.concatenate(lists)
        outside = np.flatnonzero((rows < 0) | (rows >= n_rows))
        if len(outside):
            k = int(np.searchsorted(start, outside[0], side="right")) - 1
            raise InvalidInput(
                f"client {k} must hold rows between 0 and {n_rows - 1}, got {rows[outside[0]]}"
            )
        most = max(len(rows) for rows in lists)
        return cls(rows.astype(np.int32), start.astype(np.int64), most)

    @property
    def counts(self) -> IntArray:
        return np.diff(self.start)

    def batches(
        self, client: int, *, batch_size: int, epochs: int, rng: Rng
    ) -> tuple[IndexArray, IndexArray]:
        """Return the rows of every step of a client's training, and how many of them count.

        Every epoch meets every sample once, in a new order, in ceil(n / batch_size) steps; the
        last one may be short. Both arrays are as long for every client: a client with less data
        has steps at the end that it never takes, and short steps are filled up with row 0.
        """
        rows = self.rows[self.start[client] : self.start[client + 1]]
        n_steps = -(-len(rows) // batch_size)
        longest = epochs * -(-self.most // batch_size)
        all_rows = np.zeros((longest, batch_size), np.int32)
        all_counts = np.zeros(longest, np.int32)
        for epoch in all_rows[: epochs * n_steps].reshape(epochs, -1):
            epoch[: len(rows)] = rng.permutation(rows)
        counts = all_counts[: epochs * n_steps].reshape(epochs, n_steps)
        counts[:] = batch_size
        counts[:, -1] = len(rows) - (n_steps - 1) * batch_size
        return all_rows, all_counts
