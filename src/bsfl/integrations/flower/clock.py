"""Time as the plug-in reads it: monotonic, on the server alone."""

import time
from typing import Protocol


class Clock(Protocol):
    """Anything that tells the time and can wait."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Wait."""
        ...


SYSTEM: Clock = time
"""The clock of this machine."""

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


def pause_s(waited_s: float) -> float:
    """Return how long to wait before asking again: 2 % of the wait so far, within limits.

    What is measured by asking is then at most 2 % too long, and a long wait costs few questions.

    >>> pause_s(0.0), pause_s(10.0), pause_s(600.0)
    (0.02, 0.2, 1.0)
    """
    return min(max(0.02 * waited_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
