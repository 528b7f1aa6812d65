"""Buffered asynchronous aggregation: a number of responses is applied together."""

import math
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bsfl import validation
from bsfl.errors import InvalidInput

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlan:
    """Buffered asynchronous aggregation (FedBuff, Nguyen et al. 2022).

    Attributes:
        concurrency: C, how many clients are in flight at any time.
        buffer: B, how many responses are applied together.
        deadline_s: Seconds after which a client times out and another one replaces it. None: never.
    """

    concurrency: int
    buffer: int
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        validation.natural("concurrency", self.concurrency)
        validation.natural("buffer", self.buffer)
        if self.buffer > self.concurrency:
            raise InvalidInput(
                f"buffer must not exceed the concurrency of {self.concurrency}, got {self.buffer}"
            )
        if self.deadline_s is not None:
            validation.positive("deadline_s", self.deadline_s)

    @property
    def due_s(self) -> float:
        return self.deadline_s or math.inf


def staleness_weight(staleness: int) -> float:
    r"""Return 1 / sqrt(1 + s) for a response to a model that is s versions old.

    >>> staleness_weight(0), staleness_weight(3)
    (1.0, 0.5)
    """
    return 1.0 / math.sqrt(1.0 + staleness)


@dataclass(slots=True)
class Buffer(Generic[Response]):
    """Responses that have not been applied to the model yet. It reads no clock.

    >>> buffer = Buffer(BufferPlan(concurrency=3, buffer=2))
    >>> buffer.add("ann", base=0), buffer.is_full
    (None, False)
    >>> buffer.add("bob", base=0), buffer.is_full, buffer.take()
    (None, True, [('ann', 0), ('bob', 0)])
    >>> buffer.add("cem", base=0), buffer.take(), buffer.version
    (None, [('cem', 1)], 2)

    Attributes:
        plan: The numbers of buffered aggregation.
        version: How often responses were applied.
        waiting: Responses, with the version of the model that each started from.
    """

    plan: BufferPlan
    version: int = 0
    waiting: list[tuple[Response, int]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= self.plan.buffer

    def add(self, response: Response, *, base: int) -> None:
        """Add a response to a version of the model."""
        self.waiting.append((response, base))

    def take(self) -> list[tuple[Response, int]]:
        """Return all responses with their staleness, to be applied to the model."""
        taken = [(response, self.version - base) for response, base in self.waiting]
        self.waiting, self.version = [], self.version + 1
        return taken
