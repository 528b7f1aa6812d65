"""From the settings in a scenario file to how its rounds are closed."""

from dataclasses import dataclass
from typing import Literal

from bsfl._core.registry import Registry
from bsfl.rounds import BufferPlan
from bsfl.types import OverSelection, RoundPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronousRounds:
    """A round waits for its target responses, or for its deadline.

    Attributes:
        over_selection: How many clients are invited per target response, or "auto".
        deadline_s: Seconds; None: the tau_max of the fleet.
        min_responses: Responses without which the deadline does not close a round.
        late: What becomes of late responses: "drop" or "apply", weighted by their staleness.
    """

    over_selection: OverSelection = 1.0
    deadline_s: float | None = None
    min_responses: int = 0
    late: Literal["drop", "apply"] = "drop"

    def plan(self, cohort_size: int, tau_max: float) -> RoundPlan:
        deadline_s = tau_max if self.deadline_s is None else self.deadline_s
        return RoundPlan(
            target_responses=cohort_size,
            over_selection=self.over_selection,
            deadline_s=deadline_s,
            min_responses=self.min_responses,
            late=self.late,
            lifetime_s=None if self.min_responses else deadline_s,  # a dropped client is idle
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferedRounds:
    """Asynchronous: clients are always in flight, and responses are applied in batches (FedBuff).

    Attributes:
        concurrency: How many clients are in flight at any time; None: cohort_size.
        buffer: How many responses are applied together.
        deadline_s: Seconds after which a client times out; None: the tau_max of the fleet.
    """

    concurrency: int | None = None
    buffer: int = 10
    deadline_s: float | None = None

    def plan(self, cohort_size: int, tau_max: float) -> BufferPlan:
        return BufferPlan(
            concurrency=cohort_size if self.concurrency is None else self.concurrency,
            buffer=self.buffer,
            deadline_s=tau_max if self.deadline_s is None else self.deadline_s,
        )


ROUNDS: Registry[type[SynchronousRounds | BufferedRounds]] = Registry(
    "round", {"synchronous": SynchronousRounds, "buffered": BufferedRounds}
)
