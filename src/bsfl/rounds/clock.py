"""The clock of rounds in real time, and how often to poll for responses.

Time is monotonic, on the server alone.
"""

import math
import time
from typing import Protocol


class Clock(Protocol):
    """Measures time and can wait."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


SYSTEM: Clock = time
"""The clock of this machine."""

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
"""Limits of the time between two polls."""
SHORTEST_WAIT_S = 0.001
"""Wait before a moment that is not to be missed, at least."""


def pause_s(waited_s: float, until: float = math.inf) -> float:
    """Return how long to wait before the next poll: 2 % of the wait so far, within limits.

    A latency that is measured by polling is then at most 2 % or a tenth of a second too long
    (Flower polls as often in simulation), and a long wait costs few polls. `until` is a moment of
    the wait that is not to be missed.

    >>> pause_s(0.0), pause_s(10.0), pause_s(600.0), pause_s(4.75, until=5.0)
    (0.1, 0.2, 1.0, 0.1)
    >>> pause_s(600.0, until=600.25), pause_s(600.0, until=500.0)
    (0.25, 1.0)
    """
    pause = min(max(0.02 * waited_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
    return min(pause, max(until - waited_s, SHORTEST_WAIT_S)) if waited_s < until else pause
