"""A scheduler that knows what a log tells of each client, as if it had been there."""

from collections.abc import Iterator

import numpy as np

from bsfl.over_selection import Invite
from bsfl.policies import Policy
from bsfl.records import FAILED, OUTCOMES, IntArray, Observation
from bsfl.scheduler import Scheduler
from bsfl.studies.advice.log import AnswerLog

MOST_OF_ONE, MOST_OF_ALL = 50, 200_000
"""Answers of one client, and of all, that are told: the last ones."""


def warm_start(
    log: AnswerLog, policy: Policy, *, cohort_size: int, invite: Invite = 1.0
) -> Scheduler:
    """Return a scheduler that was told the last answers of every client.

    They are dealt in rounds of cohort_size: the first of every client, then the second, and so on.
    Who takes part in a round is also who was available in it, so everybody has had its fair number
    of rounds, and nobody is owed any.
    """
    scheduler = Scheduler(policy, cohort_size=cohort_size, invite=invite)
    scheduler.join(log.clients)
    for rows in dealt(log.client, log.n_clients, cohort_size):
        answers = {log.clients[log.client[i]]: _observation(log, i) for i in rows.tolist()}
        scheduler.select(available=list(answers), cohort_size=len(answers))
        scheduler.observe(answers)
    return scheduler


def dealt(client: IntArray, n_clients: int, cohort_size: int) -> Iterator[IntArray]:
    """Yield the rows of rounds: a client at most once in each, its older rows in earlier ones.

    >>> [rows.tolist() for rows in dealt(np.array([7, 7, 8, 9, 7]), 10, 2)]
    [[0, 2], [3], [1], [4]]
    """
    most = min(MOST_OF_ONE, max(MOST_OF_ALL // max(n_clients, 1), 1))
    order = np.argsort(client, kind="stable")
    counts = np.bincount(client, minlength=n_clients)
    starts = np.cumsum(counts) - counts
    number = np.empty(len(client), dtype=np.int64)
    number[order] = np.arange(len(client)) - np.repeat(starts, counts)  # 0 is the first of a client
    level = number - np.maximum(counts - most, 0)[client]
    for i in range(int(level.max()) + 1):
        rows = np.flatnonzero(level == i)
        yield from np.split(rows, range(cohort_size, len(rows), cohort_size))


def _observation(log: AnswerLog, row: int) -> Observation:
    outcome = OUTCOMES[log.outcome[row]]
    if log.outcome[row] == FAILED:
        return Observation(outcome=outcome)
    loss = float(log.loss[row])
    latency = float(log.latency_s[row])
    return Observation(latency=latency, outcome=outcome, loss=loss if loss == loss else None)
