"""Malicious clients: false reports of what the server cannot measure."""

from dataclasses import dataclass, replace

import numpy as np

from bsfl.types import MAX_LOSS, BoolArray, RoundReport


@dataclass(frozen=True, slots=True, kw_only=True)
class MaliciousClients:
    """What malicious clients report. How long they take in truth does not change.

    Attributes:
        is_malicious: Whether each client is one.
        time: Whether they claim to be as fast as the fastest response that the server ever
            measured: a server ignores faster claims.
        loss: What they multiply their loss by; the largest that is reported is 1e12.
    """

    is_malicious: BoolArray
    time: bool = False
    loss: float = 1.0


class FalseReports:
    """The reports that the server receives; it remembers the fastest latency that it measured."""

    def __init__(self, malicious: MaliciousClients | None) -> None:
        self.malicious, self.fastest_s = malicious, np.inf

    def of(self, report: RoundReport) -> RoundReport:
        """Return a report as the server receives it."""
        malicious, responded = self.malicious, report.responded
        if malicious is None:
            return report
        self.fastest_s = min(self.fastest_s, report.latency_s[responded].min(initial=np.inf))
        is_false = malicious.is_malicious[report.clients] & responded
        fastest_s = np.minimum(self.fastest_s, report.latency_s)
        latency_s = np.where(is_false & malicious.time, fastest_s, report.latency_s)
        loss = np.where(is_false, np.minimum(report.loss * malicious.loss, MAX_LOSS), report.loss)
        return replace(report, latency_s=latency_s, loss=loss)
