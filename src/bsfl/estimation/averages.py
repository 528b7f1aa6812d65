"""Counts and running means of what clients showed."""

from dataclasses import InitVar, dataclass, field

import numpy as np

from bsfl.records import FAILED, OK, FloatArray, IntArray, Report


@dataclass(slots=True)
class Averages:
    """How often each client was chosen and observed, and the mean of what it showed.

    `selected` is c_k, in the index too: if only answers counted there, a client that no longer
    answers would look ever more promising. The two differ by the answers that are outstanding, or
    will never come.
    """

    n_clients: InitVar[int]
    selected: IntArray = field(init=False)
    observed: IntArray = field(init=False)
    mean: FloatArray = field(init=False)

    def __post_init__(self, n_clients: int) -> None:
        self.selected = np.zeros(n_clients, dtype=np.int64)
        self.observed = np.zeros(n_clients, dtype=np.int64)
        self.mean = np.zeros(n_clients)

    def learn(self, report: Report, values: FloatArray) -> None:
        """Book the selections of a report and move the means (eqs. update_c, update_mu)."""
        self.selected[report.chosen] += 1
        self.observed[report.clients] += 1
        self.mean[report.clients] += (values - self.mean[report.clients]) / self.observed[
            report.clients
        ]


def believed_latency(report: Report, tau_max: float | None) -> FloatArray:
    """Return the latency each answer stands for, in seconds.

    An answer counts as it came, but never longer than tau_max. A timeout is censored: all we know
    is that it took at least the deadline, tau_max or else the time waited. A failure counts as the
    slowest possible answer: tau_max, or one that never comes.
    """
    if tau_max is None:
        return np.where(report.outcome == FAILED, np.inf, report.latency)
    return np.where(report.outcome == OK, np.minimum(report.latency, tau_max), tau_max)
