"""A log: which clients responded, how long they took, and what that says about the clients."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bsfl.advisor.population import ClientPosterior, ResampledClients, fit_posterior
from bsfl.errors import InvalidInput
from bsfl.monitoring.words import seconds
from bsfl.policies import Policy
from bsfl.scheduler import Scheduler
from bsfl.simulation.availability import (
    Always,
    Availability,
    Independent,
    RecordedAvailability,
)
from bsfl.simulation.response_log import Row
from bsfl.types import (
    FAILED,
    OK,
    OUTCOMES,
    TIMEOUT,
    BoolArray,
    ClientId,
    FloatArray,
    IntArray,
    Observation,
    OverSelection,
)

MOST_OF_ONE, MOST_OF_ALL = 50, 200_000
"""Maximum number of responses to replay, per client and in total; the latest ones are used."""
ALWAYS = 0.98
"""Mean availability from which on all clients count as always available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLog:
    """Responses, and invitations without a response, in chronological order.

    Attributes:
        clients: Ids, in order of appearance.
        client: The client of each row, as a position in `clients`.
        latency_s: Seconds; for a timeout the seconds waited; NaN for a failure.
        outcome: Positions in OUTCOMES.
        loss: NaN where no loss was reported.
        deadline_s: Latency above which a response is late: as given, or the longest wait for a
            timeout, or the longest latency.
        cohort_size: As recorded in a journal; None: unknown.
        availability: Mean fraction of the clients that can be selected in a round.
        available: Which clients could be selected in each round, [round, client], if a journal
            records it.
        notes: How the columns of a CSV were read.
        warning: A sentence about a column that was ignored, if one was.
    """

    clients: Sequence[ClientId]
    client: IntArray
    latency_s: FloatArray
    outcome: IntArray
    loss: FloatArray
    deadline_s: float
    cohort_size: int | None = None
    availability: float = 1.0
    available: BoolArray | None = field(default=None, repr=False)
    notes: Sequence[str] = ()
    warning: str = ""

    @property
    def n_clients(self) -> int:
        return len(self.clients)

    @property
    def responded(self) -> BoolArray:
        """Which rows are responses within the deadline."""
        is_ok = self.outcome == OK
        return np.asarray(is_ok & (self.latency_s <= self.deadline_s))

    @property
    def has_losses(self) -> bool:
        return not np.isnan(self.loss).all()

    def unresponsive(self) -> list[ClientId]:
        """Return the clients that never responded within the deadline."""
        responses = np.bincount(self.client[self.responded], minlength=self.n_clients)
        return [self.clients[k] for k in np.flatnonzero(responses == 0).tolist()]

    def words(self) -> str:
        """Return a description of what was read."""
        n_rows, n_failed = len(self.client), np.count_nonzero(self.outcome == FAILED)
        n_responses = np.count_nonzero(self.responded)
        n_late = n_rows - n_responses - n_failed
        counts = (
            f"{n_rows:,} rows of {self.n_clients:,} clients: {n_responses:,} responses within "
            f"{seconds(self.deadline_s)}, {n_late:,} timeouts or late responses, "
            f"{n_failed:,} failures"
        )
        return "; ".join(filter(None, (counts, ", ".join(self.notes), self.warning)))

    def digest(self) -> str:
        """Return a checksum of everything that a simulation depends on."""
        found = hashlib.sha256(repr((self.deadline_s, self.availability)).encode())
        for array in (self.client, self.latency_s, self.outcome, self.loss, self.available):
            found.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def clients_of_seeds(self) -> ResampledClients:
        """Return the function from a seed to simulated clients that are consistent with the log."""
        availability: Availability = Always()
        if self.available is not None:
            state = self.available.astype(np.int8)
            availability = RecordedAvailability(state, np.arange(self.n_clients))
        elif self.availability < ALWAYS:
            availability = Independent(self.availability)
        return ResampledClients(
            posterior=self.posterior(),
            availability=availability,
            fastest_s=float(self.latency_s[self.responded].min()),
            deadline_s=self.deadline_s,
        )

    def posterior(self) -> ClientPosterior:
        """Return the posterior of the clients' latencies and response rates."""
        order = np.argsort(self.client, kind="stable")
        ends = np.cumsum(np.bincount(self.client, minlength=self.n_clients))
        missed, latencies, responded = np.zeros(self.n_clients), [], self.responded
        waited_s = np.where(self.outcome == TIMEOUT, self.latency_s, self.deadline_s)
        for k, rows in enumerate(np.split(order, ends[:-1])):
            is_ok = responded[rows]
            found, missed[k] = uncensored(self.latency_s[rows[is_ok]], waited_s[rows[~is_ok]])
            latencies.append(found)
        return fit_posterior(latencies, missed)


def log_of(
    rows: Sequence[Row], deadline_s: float | None, ids: Sequence[ClientId], **more: Any
) -> ResponseLog:
    """Return the log of rows in chronological order; without a deadline it follows from them."""
    places: dict[ClientId, int] = {}
    client = np.array([places.setdefault(one, len(places)) for one in ids], dtype=np.int64)
    latency, loss = (np.array([row[i] for row in rows], dtype=np.float64) for i in (1, 3))
    outcome = np.array([row.outcome for row in rows], dtype=np.int64)
    if deadline_s is None:
        waited = latency[outcome == TIMEOUT]
        responses = latency[outcome == OK]
        known = waited if np.isfinite(waited).any() else responses
        if not np.isfinite(known).any():
            raise InvalidInput("no client responded, and no deadline is given")
        deadline_s = float(np.nanmax(known))
        if known is responses:  # the longest response is only an estimate of the deadline
            deadline_s = rounded_up(deadline_s)
    latency = np.where((outcome == TIMEOUT) & np.isnan(latency), deadline_s, latency)
    log = ResponseLog(
        clients=list(places),
        client=client,
        latency_s=latency,
        outcome=outcome,
        loss=loss,
        deadline_s=deadline_s,
        **more,
    )
    if not log.responded.any():
        raise InvalidInput(f"no client responded within {deadline_s:g} s")
    return log


def uncensored(latencies: FloatArray, waited: FloatArray) -> tuple[FloatArray, float]:
    """Return a client's latencies and its missed responses, given how long the server waited.

    A response that timed out after w seconds is a censored latency above w. Its weight is
    distributed over the longer latencies, from left to right (Efron 1967); without a longer one,
    the response counts as missed. Latencies are repeated a whole number of times, so weights are
    rounded.

    >>> uncensored(np.array([1.0, 5.0]), np.array([2.0]))
    (array([1., 5., 5.]), 0.0)
    >>> uncensored(np.array([1.0, 5.0]), np.array([60.0]))
    (array([1., 5.]), 1.0)
    """
    longest = latencies.max(initial=0.0)
    if not len(waited) or waited.min() >= longest:
        return latencies, float(len(waited))
    values = np.concatenate([latencies, waited])
    is_response = np.arange(len(values)) < len(latencies)
    order = np.lexsort((~is_response, values))
    values, is_response = values[order], is_response[order]
    weight = np.ones(len(values))
    for i in np.flatnonzero(~is_response & (values < longest)):
        weight[i + 1 :] += weight[i] / (len(values) - i - 1)
        weight[i] = 0.0
    repeated = np.diff(np.round(np.cumsum(weight * is_response)), prepend=0.0)
    return np.repeat(values, repeated.astype(np.int64)), float(weight[~is_response].sum())


def rounded_up(value: float) -> float:
    """Return a number rounded up to two digits.

    >>> rounded_up(34.88), rounded_up(0.951), rounded_up(120.0)
    (35.0, 0.96, 120.0)
    """
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    up = float(f"{math.ceil(round(value / step, 6)) * step:.12g}")
    return max(up, value)


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
