"""A scheduler that starts with the statistics of a log, as if it had run the logged rounds."""

from collections.abc import Iterator

import numpy as np

from bsfl.policies import Policy
from bsfl.scheduler import Scheduler
from bsfl.studies.advice.log import ResponseLog
from bsfl.types import FAILED, OUTCOMES, IntArray, Observation, OverSelection

MOST_OF_ONE, MOST_OF_ALL = 50, 200_000
"""Maximum number of responses to replay, per client and in total; the latest ones are used."""


def warm_start(
    log: ResponseLog, policy: Policy, *, cohort_size: int, over_selection: OverSelection = 1.0
) -> Scheduler:
    """Return a scheduler that has observed the latest responses of every client.

    The responses are replayed in rounds of cohort_size: the first of every client, then the second,
    and so on. Only the clients of a round are available in it, so every client has participated as
    often as its fair count, and no client has a participation deficit.
    """
    scheduler = Scheduler(policy, cohort_size=cohort_size, over_selection=over_selection)
    scheduler.join(log.clients)
    for rows in in_rounds(log.client, log.n_clients, cohort_size):
        responses = {log.clients[log.client[i]]: _observation(log, i) for i in rows.tolist()}
        scheduler.select(available=list(responses), cohort_size=len(responses))
        scheduler.observe(responses)
    return scheduler


def in_rounds(client: IntArray, n_clients: int, cohort_size: int) -> Iterator[IntArray]:
    """Yield the rows of each round: no client occurs twice, and its older rows come earlier.

    >>> [rows.tolist() for rows in in_rounds(np.array([7, 7, 8, 9, 7]), 10, 2)]
    [[0, 2], [3], [1], [4]]
    """
    most = min(MOST_OF_ONE, max(MOST_OF_ALL // max(n_clients, 1), 1))
    order = np.argsort(client, kind="stable")
    counts = np.bincount(client, minlength=n_clients)
    starts = np.cumsum(counts) - counts
    number = np.empty(len(client), dtype=np.int64)
    number[order] = np.arange(len(client)) - np.repeat(starts, counts)  # 0 is the first of a client
    turn = number - np.maximum(counts - most, 0)[client]
    for i in range(int(turn.max()) + 1):
        rows = np.flatnonzero(turn == i)
        yield from np.split(rows, range(cohort_size, len(rows), cohort_size))


def _observation(log: ResponseLog, row: int) -> Observation:
    outcome = OUTCOMES[log.outcome[row]]
    if log.outcome[row] == FAILED:
        return Observation(outcome=outcome)
    loss = float(log.loss[row])
    latency = float(log.latency_s[row])
    return Observation(latency_s=latency, outcome=outcome, loss=loss if loss == loss else None)
