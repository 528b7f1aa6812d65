"""The last round as it goes on: who was chosen, and what became of each so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.records import (
    FAILED,
    LARGEST_LOSS,
    LATE,
    OK,
    OUTCOMES,
    TIMEOUT,
    FloatArray,
    IntArray,
    Report,
    RoundContext,
    RoundRecord,
)

AWAITED = -1
"""Outcome of a client that has not been reported yet."""


@dataclass(slots=True, kw_only=True)
class LastRound:
    """What a scheduler keeps of its last round.

    Attributes:
        t: Its number.
        cohort: Sorted dense indices of those that were chosen.
        cohort_size, enough, n_available: As in RoundRecord.
        outcome: Positions in OUTCOMES, AWAITED where none is known yet.
        latency, loss: What they reported, NaN where nothing.
        is_told: Whether the round's line is in the journal: what comes later is a late answer.
    """

    t: int
    cohort: IntArray
    cohort_size: int
    enough: int
    n_available: int
    outcome: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    latency: FloatArray = field(default_factory=lambda: np.zeros(0))
    loss: FloatArray = field(default_factory=lambda: np.zeros(0))
    is_told: bool = False

    def __post_init__(self) -> None:
        if len(self.outcome) != len(self.cohort):
            self.outcome = np.full(len(self.cohort), AWAITED)
            self.latency, self.loss = np.full((2, len(self.cohort)), np.nan)

    @classmethod
    def of(cls, context: RoundContext, cohort: IntArray) -> "LastRound":
        """Return a round that has just begun."""
        return cls(
            t=context.t,
            cohort=cohort,
            cohort_size=context.cohort_size,
            enough=context.quota,
            n_available=len(context.available),
        )

    def hear(self, report: Report) -> None:
        """Take in what became of clients; of one that was forgotten meanwhile, nothing."""
        if not len(report.clients) or not len(self.cohort):
            return
        at = np.minimum(np.searchsorted(self.cohort, report.clients), len(self.cohort) - 1)
        known = self.cohort[at] == report.clients
        at = at[known]
        self.outcome[at] = report.outcome[known]
        self.latency[at] = report.latency[known]
        self.loss[at] = report.loss[known]

    @property
    def is_over(self) -> bool:
        """Whether enough have answered, or all are reported."""
        n_ok = int(np.count_nonzero(self.outcome == OK))
        return n_ok >= self.enough or not np.any(self.outcome == AWAITED)

    def duration_s(self) -> float | None:
        """Return the longest latency of those that were waited for; None if nobody told any.

        Once enough have answered those are the ones in the model, else all that are not late.
        """
        if np.count_nonzero(self.outcome == OK) >= self.enough:
            waited = self.outcome == OK
        else:
            waited = (self.outcome != AWAITED) & (self.outcome != LATE)
        latency = self.latency[waited]
        latency = latency[~np.isnan(latency)]
        return float(latency.max()) if len(latency) else None

    def record(self, ids: list[Any]) -> RoundRecord:
        """Return what is known of the round now, with the caller's ids."""
        counts = np.bincount(self.outcome[self.outcome >= 0], minlength=len(OUTCOMES)).tolist()
        told = self.loss[(self.outcome == OK) & ~np.isnan(self.loss)]
        is_begun = bool(sum(counts))
        return RoundRecord(
            t=self.t,
            cohort=tuple(ids[k] for k in self.cohort.tolist()),
            cohort_size=self.cohort_size,
            enough=self.enough,
            n_available=self.n_available,
            duration_s=self.duration_s(),
            n_answered=counts[OK] if is_begun else None,
            n_timeouts=counts[TIMEOUT] if is_begun else None,
            n_failed=counts[FAILED] if is_begun else None,
            n_late=counts[LATE] if is_begun else None,
            train_loss=float(told.mean()) if len(told) else None,
        )

    def moved(self, place: IntArray) -> "LastRound":
        """Return the same for clients with other numbers: client k is now place[k], none below 0.

        Whoever has none is no longer in the cohort.
        """
        kept = place[self.cohort] >= 0
        return replace(
            self,
            cohort=place[self.cohort[kept]],
            outcome=self.outcome[kept],
            latency=self.latency[kept],
            loss=self.loss[kept],
        )

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what became of the cohort, as arrays."""
        return {"outcome": self.outcome, "latency": self.latency, "loss": self.loss}

    @staticmethod
    def check_arrays(arrays: Mapping[str, npt.NDArray[Any]], n: int) -> None:
        """Check what `to_arrays` gave for a cohort of n; a file of before has nothing of it."""
        for name, array in arrays.items():
            kind = "i" if name == "outcome" else "f"
            if array.dtype.kind != kind or array.shape != (n,):
                raise InvalidInput(f"last/{name} must hold one value for each of the cohort")
            low, high = {
                "outcome": (AWAITED, len(OUTCOMES) - 1),
                "latency": checks.LATENCY_RANGE,
                "loss": (-LARGEST_LOSS, LARGEST_LOSS),
            }[name]
            fine = np.isnan(array) | ((array >= low) & (array <= high))
            if not fine.all():
                raise InvalidInput(f"last/{name} holds {array[~fine][0]!s}, which cannot be")
        if arrays and len(arrays) < 3:
            raise InvalidInput("what became of the last cohort is not complete")
