"""The task: what belongs to one training job, and the policy's own state."""

from dataclasses import dataclass, field

import numpy as np

from bsfl._core.pool import PRIOR_MISSES, PRIOR_RESPONSES
from bsfl._core.state import MAX_ROUNDS, ClientState, Column, StateView, number, per_client
from bsfl.types import MAX_LOSS, FloatArray, IntArray
from bsfl.validation import LARGEST

MIN_FAIR_COUNT = 1e-100
"""Fair counts below are 0: one round adds at least one over the number of clients."""


@dataclass(slots=True, kw_only=True)
class TaskState(ClientState):
    """Counts of one training job; rows beyond those of the pool are spare.

    Attributes:
        round: The last round that was opened; 0: none.
        cohort_response_rate: Mean response rate of the last cohort whose size was found by it.
        joined_late: Whether any client joined, or came back, after round 1.
        joined: Round from which a client's rounds count: 1 for a founder, later for a client that
            joined later or was away.
        left: The round in which a client left last, or joined.
        invitations: c_k of the paper, how often each client was selected.
        participations: How many of its responses were aggregated.
        dropped: How many of its responses came late and were not applied.
        fair_count: e_k, its fair number of participations: the sum of min(1, m / |A|) over the
            rounds in which it was one of the available clients A.
        last_selected: The round in which it was selected last; 0: never.
        last_loss: The last loss that it reported; NaN: none.
    """

    round: int = field(default=0, metadata={"low": 0, "high": MAX_ROUNDS})
    cohort_response_rate: float = number(
        PRIOR_RESPONSES / (PRIOR_RESPONSES + PRIOR_MISSES), low=0.01, high=1.0
    )
    joined_late: bool = False
    joined: IntArray = per_client(1, low=1, narrow=True)
    left: IntArray = per_client(1, low=1, narrow=True)
    invitations: IntArray = per_client(0, narrow=True)
    participations: IntArray = per_client(0, narrow=True)
    dropped: IntArray = per_client(0, narrow=True)
    fair_count: FloatArray = per_client(0.0, low=0.0, high=LARGEST)
    last_selected: IntArray = per_client(0, narrow=True)
    last_loss: FloatArray = per_client(np.nan, low=-MAX_LOSS, high=MAX_LOSS)


class TaskView(StateView):
    """What policies and reports read of the task: columns of TaskState, read-only."""

    invitations: IntArray = Column()  # type: ignore[assignment]
    participations: IntArray = Column()  # type: ignore[assignment]
    dropped: IntArray = Column()  # type: ignore[assignment]
    fair_count: FloatArray = Column()  # type: ignore[assignment]
    last_selected: IntArray = Column()  # type: ignore[assignment]
    last_loss: FloatArray = Column()  # type: ignore[assignment]

    @property
    def round(self) -> int:
        """The last round that was opened."""
        return int(self._state.round)

    @property
    def joined_round(self) -> IntArray | None:
        """The round from which each client's rounds count; None: 1 for every client."""
        return self.column("joined") if self._state.joined_late else None

    def participation_ratio(self) -> FloatArray:
        """Return participations over the fair count; NaN where the fair count is 0."""
        fair = self.fair_count
        return np.asarray(self.participations / np.where(fair > MIN_FAIR_COUNT, fair, np.nan))
