"""Rounds without a barrier: clients are always at work, and every so many answers are applied."""

import math
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bsfl import checks
from bsfl.errors import InvalidInput

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlan:
    """Buffered asynchronous aggregation (FedBuff, Nguyen et al. 2022).

    Attributes:
        concurrency: C, how many clients are at work at any time.
        buffer: B, how many answers are applied together.
        deadline_s: Seconds after which a client is given up and its place is free. None: never.
    """

    concurrency: int
    buffer: int
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        checks.natural("concurrency", self.concurrency)
        checks.natural("buffer", self.buffer)
        if self.buffer > self.concurrency:
            raise InvalidInput(
                f"buffer must not exceed the concurrency of {self.concurrency}, got {self.buffer}"
            )
        if self.deadline_s is not None:
            checks.positive("deadline_s", self.deadline_s)

    @property
    def due_s(self) -> float:
        return self.deadline_s or math.inf


def staleness_weight(staleness: int) -> float:
    r"""Return 1 / sqrt(1 + s) for an answer to a model that is s versions old.

    >>> staleness_weight(0), staleness_weight(3)
    (1.0, 0.5)
    """
    return 1.0 / math.sqrt(1.0 + staleness)


@dataclass(slots=True)
class Buffer(Generic[Answer]):
    """Answers that wait to be applied. It reads no clock.

    >>> buffer = Buffer(BufferPlan(concurrency=3, buffer=2))
    >>> buffer.add("ann", base=0), buffer.is_full
    (None, False)
    >>> buffer.add("bob", base=0), buffer.is_full, buffer.take()
    (None, True, [('ann', 0), ('bob', 0)])
    >>> buffer.add("cem", base=0), buffer.take(), buffer.version
    (None, [('cem', 1)], 2)

    Attributes:
        plan: The numbers.
        version: How often answers were applied.
        waiting: Answers, with the version of the model that each started from.
    """

    plan: BufferPlan
    version: int = 0
    waiting: list[tuple[Answer, int]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= self.plan.buffer

    def add(self, answer: Answer, *, base: int) -> None:
        """Take in an answer to a version of the model."""
        self.waiting.append((answer, base))

    def take(self) -> list[tuple[Answer, int]]:
        """Return all answers with their staleness, to be applied to the model."""
        taken = [(one, self.version - since) for one, since in self.waiting]
        self.waiting, self.version = [], self.version + 1
        return taken
