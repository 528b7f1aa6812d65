"""Counts and running means of what clients showed, and queues of clients that wait."""

from dataclasses import dataclass

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.records import FAILED, LATE, FloatArray, IntArray, Report, RoundContext, pick
from bsfl.requirements import keep_losses
from bsfl.state import ClientState, per_client

Share = float | FloatArray


@dataclass(slots=True, kw_only=True)
class Selections(ClientState):
    """How often each client was chosen, and the last loss it reported (NaN: never).

    `selected` counts for exploration. What a client is owed does not count the selections whose
    answer came when its round was over, `late`: it worked, and is not in the model. A timeout or
    a failure counts as a chance that it had: else who never answers would be asked in every round.
    """

    selected: IntArray = per_client(0)
    late: IntArray = per_client(0)
    loss: FloatArray = per_client(np.nan)

    def check(self) -> None:
        """Check that nobody was late more often than chosen."""
        if np.any(self.late > self.selected):
            raise InvalidInput("late counts more answers than selected")

    def book(self, report: Report) -> None:
        """Take in the selections, late answers and losses of a report."""
        self.selected[report.chosen] += 1
        self.late[report.clients[report.outcome == LATE]] += 1
        keep_losses(self.loss, report)

    def served(self, clients: IntArray) -> IntArray:
        """Return c_k: how often each client took part, answers that are awaited included."""
        return pick(self.selected, clients) - pick(self.late, clients)


@dataclass(slots=True, kw_only=True)
class Averages(ClientState):
    """How often each client was chosen and observed, and the mean of what it showed.

    `selected` is c_k, in the index too: if only answers counted there, a client that no longer
    answers would look ever more promising. The two differ by the answers that are outstanding, or
    will never come.
    """

    selected: IntArray = per_client(0)
    observed: IntArray = per_client(0)
    mean: FloatArray = per_client(0.0)

    def learn(self, report: Report, values: FloatArray) -> None:
        """Book the selections of a report and move the means (eqs. update_c, update_mu)."""
        clients = report.clients
        self.selected[report.chosen] += 1
        self.observed[clients] += 1
        self.mean[clients] += (values - self.mean[clients]) / self.observed[clients]


@dataclass(slots=True, kw_only=True)
class Queued(Averages):
    r"""Averages and queues D_k <- max(D_k + share_k - [k was chosen], 0) that start at 0.

    A queue nobody serves grows by its share each round, so it is stored as it stood after the
    client was last served, with the number of the client's rounds at that time: O(cohort) a round.
    When shares change because the fleet does, the time since then counts at the new share.
    """

    queue: FloatArray = per_client(0.0, low=0.0)
    queue_round: IntArray = per_client(1)

    def queues(self, context: RoundContext, clients: IntArray, share: Share) -> FloatArray:
        """Return D_k of clients at the start of this round."""
        waited = context.rounds(clients) - self.queue_round[clients]
        return self.queue[clients] + share * waited

    def serve(self, context: RoundContext, chosen: IntArray, share: Share) -> None:
        """Book the selection of clients in the round of the context."""
        served = self.queues(context, chosen, share) + share - 1.0
        self.queue[chosen] = np.maximum(served, 0.0)
        self.queue_round[chosen] = context.rounds(chosen) + np.ones_like(chosen)


def believed_latency(report: Report, tau_max: float | None) -> FloatArray:
    """Return the latency each answer stands for, in seconds.

    An answer counts as it came, but never longer than tau_max. A timeout is censored: all we know
    is that it took at least the deadline, tau_max or else the time waited. A failure counts as the
    slowest possible answer: tau_max, or one that never comes.
    """
    if tau_max is None:
        return np.where(report.outcome == FAILED, np.inf, report.latency)
    return np.where(report.answered, np.minimum(report.latency, tau_max), tau_max)
