"""Clients that lie about what the server cannot measure."""

from dataclasses import dataclass, replace

import numpy as np

from bsfl.records import LARGEST_LOSS, OK, BoolArray, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Lies:
    """What liars tell. The world itself stays as it is.

    Attributes:
        liars: Whether each client lies.
        time: Whether they claim to be as fast as the fastest answer that the server ever measured:
            more is not believed, see `latency="reported"` of the Flower plug-in.
        loss: What they multiply their loss by; the largest that is believed is 1e12.
    """

    liars: BoolArray
    time: bool = False
    loss: float = 1.0

    def told(self, report: Report, fastest_s: float) -> Report:
        """Return a report as the policy gets it."""
        lies = self.liars[report.clients] & report.answered
        latency = np.where(lies & self.time, fastest_s, report.latency)
        told = np.minimum(report.loss * self.loss, LARGEST_LOSS)
        loss = np.where(lies & (report.outcome == OK), told, report.loss)
        return replace(report, latency=np.minimum(latency, report.latency), loss=loss)


class Hearsay:
    """What the server hears; it remembers the fastest answer that it measured."""

    def __init__(self, lies: Lies | None) -> None:
        self.lies, self.fastest_s = lies, np.inf

    def told(self, report: Report) -> Report:
        """Return a report as the policy gets it."""
        if self.lies is None:
            return report
        self.fastest_s = min(self.fastest_s, report.latency[report.answered].min(initial=np.inf))
        return self.lies.told(report, self.fastest_s)
