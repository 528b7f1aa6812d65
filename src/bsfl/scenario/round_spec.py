"""From the settings in a scenario file to how its rounds are closed."""

from dataclasses import dataclass
from typing import Literal

from bsfl.over_selection import Invite
from bsfl.registry import Registry
from bsfl.rounds import BufferPlan, RoundPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """A round waits until enough clients have answered, or for its deadline.

    Attributes:
        invite: How many times cohort_size are invited, or "auto"; the first cohort_size answers are
            kept.
        deadline_s: Seconds; None: the fleet's tau_max.
        quorum: How many must have answered before the deadline ends a round.
        late: What becomes of later answers: "drop" or "apply", weighted by their staleness.
    """

    invite: Invite = 1.0
    deadline_s: float | None = None
    quorum: int = 0
    late: Literal["drop", "apply"] = "drop"

    def plan(self, cohort_size: int, tau_max: float) -> RoundPlan:
        deadline_s = tau_max if self.deadline_s is None else self.deadline_s
        return RoundPlan(
            cohort_size=cohort_size,
            invite=self.invite,
            deadline_s=deadline_s,
            quorum=self.quorum,
            late=self.late,
            lifetime_s=None if self.quorum else deadline_s,  # nobody works on for nothing
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffered:
    """No barrier: clients are always at work, and every so many answers are applied (FedBuff).

    Attributes:
        concurrency: How many are at work at any time; None: cohort_size.
        buffer: How many answers are applied together.
        deadline_s: Seconds after which a client is given up; None: the fleet's tau_max.
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


ROUNDS: Registry[type[Barrier | Buffered]] = Registry(
    "round", {"barrier": Barrier, "buffered": Buffered}
)
