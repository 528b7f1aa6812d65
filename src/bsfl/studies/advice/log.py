"""Reads logs, from a CSV or a journal: which clients responded, and how long they took."""

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import validation
from bsfl._core.clients import clean_id
from bsfl.errors import InvalidInput
from bsfl.monitoring.journal import START, Entry, journal_files, read_journal
from bsfl.monitoring.words import seconds
from bsfl.persistence.statefile import MAGIC
from bsfl.simulation.client_rows import MAX_ROWS, quoted
from bsfl.simulation.response_log import Columns, Row, columns_read, read_csv
from bsfl.studies.advice.resampled import ClientPosterior, fit_posterior
from bsfl.types import (
    FAILED,
    LATENCY_RANGE,
    MAX_LOSS,
    OK,
    OUTCOMES,
    TIMEOUT,
    BoolArray,
    ClientId,
    FloatArray,
    IntArray,
)

MOST_CELLS = 100_000_000
"""Maximum rounds x clients of recorded availability; above it, only the mean is used."""


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
        columns: Descriptions of the columns that were read from a CSV.
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
    columns: Sequence[str] = ()

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
        return "; ".join(filter(None, (counts, ", ".join(self.columns))))

    def digest(self) -> str:
        """Return a checksum of everything that a simulation depends on."""
        found = hashlib.sha256(repr((self.deadline_s, self.availability)).encode())
        for array in (self.client, self.latency_s, self.outcome, self.loss, self.available):
            found.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def posterior(self) -> ClientPosterior:
        """Return the posterior of the clients' latencies and response rates."""
        order = np.argsort(self.client, kind="stable")
        ends = np.cumsum(np.bincount(self.client, minlength=self.n_clients))
        rows = np.split(order, ends[:-1])
        missed, latencies, responded = np.zeros(self.n_clients), [], self.responded
        waited_s = np.where(self.outcome == TIMEOUT, self.latency_s, self.deadline_s)
        for k, of_client in enumerate(rows):
            is_ok = responded[of_client]
            found, missed[k] = uncensored(
                self.latency_s[of_client[is_ok]], waited_s[of_client[~is_ok]]
            )
            latencies.append(found)
        return fit_posterior(latencies, missed)


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


def read_log(
    path: Path,
    *,
    deadline_s: float | None = None,
    columns: Columns | None = None,
    ids: str = "auto",
) -> ResponseLog:
    """Read a CSV with a header, or a journal of a Scheduler.

    Args:
        path: The file; for a journal, its newest file.
        deadline_s: Latency above which a response is late; None: from the log.
        columns: Names of the columns of a CSV, if they cannot be guessed.
        ids: Type of the ids in a CSV: "text", "int", or "auto": int if all ids are integers.
    """
    validation.one_of("ids", ids, ("auto", "text", "int"))
    if deadline_s is not None:
        validation.seconds("deadline", deadline_s)
    if is_journal(path):
        return _journal_log(path, deadline_s)
    columns = columns or Columns()
    rows = read_csv(path, columns)
    if not any(math.isnan(row.at) for row in rows):
        rows.sort(key=lambda row: row.at)
    names, found = _ids(path, [row.client for row in rows], ids), columns_read(path, columns)
    return _log(path, rows, deadline_s, names, columns=found)


def is_journal(path: Path) -> bool:
    """Return whether a file starts like a journal."""
    try:
        with journal_files(path)[-1].open("rb") as file:
            start = file.read(max(len(START), len(MAGIC)))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from None
    if start.startswith(MAGIC):
        raise InvalidInput(
            f"{path} is a saved scheduler (bsfl inspect shows it); advice needs a log of "
            "responses: a CSV with client and latency, or a journal of Scheduler(journal=...)"
        )
    return start.startswith(START)


def _log(
    path: Path,
    rows: Sequence[Row],
    deadline_s: float | None,
    ids: Sequence[ClientId],
    **more: Any,
) -> ResponseLog:
    places: dict[ClientId, int] = {}
    client = np.array([places.setdefault(one, len(places)) for one in ids], dtype=np.int64)
    latency, loss = (np.array([row[i] for row in rows], dtype=np.float64) for i in (1, 3))
    outcome = np.array([row.outcome for row in rows], dtype=np.int64)
    if deadline_s is None:
        waited = latency[outcome == TIMEOUT]
        responses = latency[outcome == OK]
        known = waited if np.isfinite(waited).any() else responses
        if not np.isfinite(known).any():
            raise InvalidInput(f"{path}: no client responded, and no deadline is given")
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
        raise InvalidInput(f"{path}: no client responded within {deadline_s:g} s")
    return log


def rounded_up(value: float) -> float:
    """Return a number rounded up to two digits.

    >>> rounded_up(34.88), rounded_up(0.951), rounded_up(120.0)
    (35.0, 0.96, 120.0)
    """
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    up = float(f"{math.ceil(round(value / step, 6)) * step:.12g}")
    return max(up, value)


def _ids(path: Path, names: Sequence[str], ids: str) -> Sequence[ClientId]:
    distinct = set(names)
    try:
        for name in distinct:
            clean_id(name)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    odd = next((x for x in distinct if not re.fullmatch(r"0|-?[1-9]\d{0,18}", x)), None)
    if ids == "int" and odd is not None:
        raise InvalidInput(f"{path}: ids must be whole numbers, got {quoted(odd)!r}")
    is_text = ids == "text" or odd is not None
    return list(names) if is_text else [int(name) for name in names]


def _journal_log(path: Path, deadline_s: float | None) -> ResponseLog:
    """Return the log of the rounds in a journal.

    If a round was repeated after a restart from an older state file, only its last run counts.
    Responses also count if their round was opened in a journal file that no longer exists.
    """
    opened: dict[int, Entry] = {}
    found: dict[int, dict[Any, Row]] = {}
    renamed: list[tuple[Any, Any]] = []
    n_rows = 0
    for entry in read_journal(path):
        try:
            if entry["kind"] == "opened":
                number = int(entry["round"])
                n_rows -= len(found.pop(number, ()))
                opened[number] = entry
            elif entry["kind"] == "responses":
                of_round = found.setdefault(int(entry["round"]), {})
                n_before = len(of_round)
                of_round |= _rows(entry)
                n_rows += len(of_round) - n_before
            elif entry["kind"] == "renamed":
                renamed.append((entry["client"], entry["name"]))
                for of_round in found.values():
                    if (row := of_round.pop(entry["client"], None)) is not None:
                        of_round[entry["name"]] = row._replace(client=entry["name"])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue  # malformed entries are ignored
        if n_rows > MAX_ROWS:
            raise InvalidInput(f"{path}: more than {MAX_ROWS:,} responses")
    rows = [row for _, of_round in sorted(found.items()) for row in of_round.values()]
    if not rows:
        raise InvalidInput(f"{path}: the journal has no round with a response")
    ids: list[Any] = [row.client for row in rows]
    if len({type(one) for one in ids}) > 1:
        ids = [str(one) for one in ids]
    size = _usual(opened.values(), "target_responses")
    log = _log(path, rows, deadline_s, ids, cohort_size=size)
    return _with_availability(log, path, list(opened.values()), renamed)


def _rows(entry: Entry) -> dict[Any, Row]:
    """Return the valid responses in an entry of a journal, by client."""
    columns = (entry[name] for name in ("clients", "outcome", "latency_s", "loss"))
    low, high = LATENCY_RANGE
    found = {}
    for client, outcome, latency_s, loss in zip(*columns, strict=True):
        is_failed = outcome == OUTCOMES[FAILED]
        if outcome not in OUTCOMES or not isinstance(client, str | int):
            continue
        if not is_failed and not low <= float(latency_s) <= high:
            continue
        found[client] = Row(
            client=client,  # type: ignore[arg-type]
            latency_s=math.nan if is_failed else float(latency_s),
            outcome=OUTCOMES.index(outcome),
            loss=math.nan if loss is None or not abs(float(loss)) <= MAX_LOSS else float(loss),
            at=float(entry["round"]),
        )
    return found


def _usual(entries: Iterable[Entry], name: str) -> int | None:
    """Return the median of a number that rounds record."""
    values = [e[name] for e in entries if isinstance(e.get(name), int) and e[name] > 0]
    return int(np.median(values)) if values else None


def _with_availability(
    log: ResponseLog, path: Path, opened: Sequence[Entry], renamed: Sequence[tuple[Any, Any]]
) -> ResponseLog:
    """Return a log with the availability of clients, as far as the journal records it."""
    known = [e["n_available"] for e in opened if isinstance(e.get("n_available"), int)]
    part = float(np.mean(known)) / log.n_clients if known else 1.0
    log = replace(log, availability=min(max(part, 0.0), 1.0))
    if len(opened) * log.n_clients > MOST_CELLS:
        return log
    places: dict[Any, int] = {client: k for k, client in enumerate(log.clients)}
    for old, new in reversed(renamed):
        if new in places:
            places.setdefault(old, places[new])
    rows = list(_availability(places, log.n_clients, path).values())
    return replace(log, available=np.stack(rows)) if rows else log


def _availability(places: dict[Any, int], n_clients: int, path: Path) -> dict[int, BoolArray]:
    """Return which clients could be selected in each round of a journal.

    Rounds whose number of clients differs from the recorded one are left out: a journal does not
    record which clients were online at its start, or at a restart from an older state file.
    """
    online: set[Any] = set()
    found: dict[int, BoolArray] = {}
    has_changes = False
    for entry in read_journal(path):
        try:
            match entry["kind"]:
                case "joined":
                    online.update(entry["new"], entry["clients"])
                case "availability" if "on" in entry:
                    has_changes = True
                    online.update(entry["on"])
                    online.difference_update(entry["off"])
                case "left" | "forgotten":
                    online.difference_update(entry["clients"])
                case "renamed":
                    if entry["client"] in online:
                        online.remove(entry["client"])
                        online.add(entry["name"])
                case "opened":
                    free = online.difference(entry["busy"])
                    if len(free) == entry["n_available"]:
                        row = np.zeros(n_clients, dtype=bool)
                        row[[places[one] for one in free if one in places]] = True
                        found[int(entry["round"])] = row
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    return found if has_changes else {}
