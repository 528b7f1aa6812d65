"""What a log tells: who answered, how long it took, who did not; from a CSV or a journal."""

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.fleet.answer_log import Columns, Row, columns_read, read_csv
from bsfl.fleet.client_rows import MAX_ROWS, quoted
from bsfl.fleet.resampled import Believed, believe
from bsfl.monitor.journal import START, Entry, journal_files, read_journal
from bsfl.monitor.words import seconds
from bsfl.records import (
    FAILED,
    LARGEST_LOSS,
    LATE,
    LATENCY_RANGE,
    OK,
    OUTCOMES,
    TIMEOUT,
    BoolArray,
    FloatArray,
    IntArray,
)
from bsfl.saving.statefile import MAGIC
from bsfl.scheduling.clients import ClientId, clean_id

MOST_CELLS = 100_000_000
"""Rounds x clients of a journal that lists who was available; else their number counts alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLog:
    """Answers, and invitations that were not answered, in the order of time.

    Attributes:
        clients: Ids, in the order in which they appear.
        client: Whose each row is, as a position in `clients`.
        latency_s: Seconds; of a timeout the seconds waited; NaN of a failure.
        outcome: Positions in OUTCOMES.
        loss: NaN where it was not told.
        deadline_s: When an answer is overdue: as given, the longest wait for one that timed out,
            or the longest latency.
        cohort_size: As a journal says; None: unknown.
        availability: Part of the clients that can be chosen in a round.
        available: Who could be chosen in each round, [round, client], where a journal lists that.
        columns: Which columns of a CSV were taken for what, in words.
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
    def answered(self) -> BoolArray:
        """Which rows are answers that came by the deadline."""
        came = (self.outcome == OK) | (self.outcome == LATE)
        return np.asarray(came & (self.latency_s <= self.deadline_s))

    @property
    def has_losses(self) -> bool:
        return not np.isnan(self.loss).all()

    def silent(self) -> list[ClientId]:
        """Return the clients that never answered by the deadline."""
        met = np.bincount(self.client[self.answered], minlength=self.n_clients)
        return [self.clients[k] for k in np.flatnonzero(met == 0).tolist()]

    def words(self) -> str:
        """Return what was read."""
        n_rows, n_failed = len(self.client), np.count_nonzero(self.outcome == FAILED)
        n_came = np.count_nonzero(self.answered)
        counts = (
            f"{n_rows:,} rows of {self.n_clients:,} clients: {n_came:,} answers within "
            f"{seconds(self.deadline_s)}, {n_rows - n_came - n_failed:,} timeouts or later, "
            f"{n_failed:,} failures"
        )
        return "; ".join(filter(None, (counts, ", ".join(self.columns))))

    def digest(self) -> str:
        """Return a fingerprint of all that a simulation depends on."""
        found = hashlib.sha256(repr((self.deadline_s, self.availability)).encode())
        for array in (self.client, self.latency_s, self.outcome, self.loss, self.available):
            found.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def believed(self) -> Believed:
        """Return what to believe of the clients, by their answers and what they did not answer."""
        order = np.argsort(self.client, kind="stable")
        ends = np.cumsum(np.bincount(self.client, minlength=self.n_clients))
        rows = np.split(order, ends[:-1])
        missed, latencies, answered = np.zeros(self.n_clients), [], self.answered
        waited_s = np.where(self.outcome == TIMEOUT, self.latency_s, self.deadline_s)
        for k, own in enumerate(rows):
            came = answered[own]
            answers, missed[k] = uncensored(self.latency_s[own[came]], waited_s[own[~came]])
            latencies.append(answers)
        return believe(latencies, missed)


def uncensored(answers: FloatArray, waited: FloatArray) -> tuple[FloatArray, float]:
    """Return a client's answers and misses, when some were not waited for until the deadline.

    One that was given up after w seconds is as likely as any other to have taken more than w: it is
    shared among the longer ones, from left to right (Efron 1967), and is a miss if there is none.
    Answers are repeated in whole, so what is shared is rounded.

    >>> uncensored(np.array([1.0, 5.0]), np.array([2.0]))
    (array([1., 5., 5.]), 0.0)
    >>> uncensored(np.array([1.0, 5.0]), np.array([60.0]))
    (array([1., 5.]), 1.0)
    """
    longest = answers.max(initial=0.0)
    if not len(waited) or waited.min() >= longest:
        return answers, float(len(waited))
    values = np.concatenate([answers, waited])
    is_answer = np.arange(len(values)) < len(answers)
    order = np.lexsort((~is_answer, values))
    values, is_answer = values[order], is_answer[order]
    weight = np.ones(len(values))
    for i in np.flatnonzero(~is_answer & (values < longest)):
        weight[i + 1 :] += weight[i] / (len(values) - i - 1)
        weight[i] = 0.0
    repeated = np.diff(np.round(np.cumsum(weight * is_answer)), prepend=0.0)
    return np.repeat(values, repeated.astype(np.int64)), float(weight[~is_answer].sum())


def read_log(
    path: Path,
    *,
    deadline_s: float | None = None,
    columns: Columns | None = None,
    ids: str = "auto",
) -> AnswerLog:
    """Return what a CSV with a header, or a journal of a Scheduler, says of clients.

    Args:
        path: The file; of a journal the newest one.
        deadline_s: When an answer is overdue. None: as the log shows.
        columns: Names of the columns of a CSV, where they cannot be guessed.
        ids: Of a CSV: "text", "int", or "auto": int where all of them are written so.
    """
    checks.one_of("ids", ids, ("auto", "text", "int"))
    if deadline_s is not None:
        checks.seconds("deadline", deadline_s)
    if is_journal(path):
        return _journal_log(path, deadline_s)
    columns = columns or Columns()
    rows = read_csv(path, columns)
    if not any(math.isnan(row.at) for row in rows):
        rows.sort(key=lambda row: row.at)
    names, found = _ids(path, [row.client for row in rows], ids), columns_read(path, columns)
    return _log(path, rows, deadline_s, names, columns=found)


def is_journal(path: Path) -> bool:
    """Return whether a file begins as journals do."""
    try:
        with journal_files(path)[-1].open("rb") as file:
            start = file.read(max(len(START), len(MAGIC)))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from None
    if start.startswith(MAGIC):
        raise InvalidInput(
            f"{path} is a saved scheduler (look into it with bsfl inspect); advice needs a log of "
            "answers: a CSV with client and latency, or a journal of Scheduler(journal=...)"
        )
    return start.startswith(START)


def _log(
    path: Path,
    rows: Sequence[Row],
    deadline_s: float | None,
    ids: Sequence[ClientId],
    **more: Any,
) -> AnswerLog:
    places: dict[ClientId, int] = {}
    client = np.array([places.setdefault(one, len(places)) for one in ids], dtype=np.int64)
    latency, loss = (np.array([row[i] for row in rows], dtype=np.float64) for i in (1, 3))
    outcome = np.array([row.outcome for row in rows], dtype=np.int64)
    if deadline_s is None:
        waited = latency[outcome == TIMEOUT]
        came = latency[(outcome == OK) | (outcome == LATE)]
        known = waited if np.isfinite(waited).any() else came
        if not np.isfinite(known).any():
            raise InvalidInput(f"{path}: nobody answered, and no deadline is given")
        deadline_s = float(np.nanmax(known))
        if known is came:  # nothing but the longest answer, so a number to paste will do
            deadline_s = rounded_up(deadline_s)
    latency = np.where((outcome == TIMEOUT) & np.isnan(latency), deadline_s, latency)
    log = AnswerLog(
        clients=list(places),
        client=client,
        latency_s=latency,
        outcome=outcome,
        loss=loss,
        deadline_s=deadline_s,
        **more,
    )
    if not log.answered.any():
        raise InvalidInput(f"{path}: nobody answered within {deadline_s:g} s")
    return log


def rounded_up(value: float) -> float:
    """Return the next number with two digits.

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


def _journal_log(path: Path, deadline_s: float | None) -> AnswerLog:
    rounds: dict[int, Entry] = {}
    late: dict[tuple[int, Any], Entry] = {}
    for entry in read_journal(path):
        try:
            if entry["kind"] == "round":
                rounds[int(entry["t"])] = entry  # a later line of the same round counts
            elif entry["kind"] == "late":
                late[int(entry["t"]), entry["client"]] = entry
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    rows: list[Row] = []
    for t, entry in sorted(rounds.items()):
        try:
            columns = (entry[name] for name in ("invited", "outcome", "latency_s", "loss"))
            for told in zip(*columns, strict=True):
                later = late.pop((t, told[0]), None) if told[1] in (None, "timeout") else None
                if later is not None:
                    told = (told[0], *(later[name] for name in ("outcome", "latency_s", "loss")))
                rows.extend(_told(told, t))
        except (KeyError, TypeError, ValueError, OverflowError):
            continue  # not as we write them
        if len(rows) > MAX_ROWS:
            raise InvalidInput(f"{path}: more than {MAX_ROWS:,} answers")
    if not rows:
        raise InvalidInput(f"{path}: there is no round in the journal that anybody answered")
    ids: list[Any] = [row.client for row in rows]
    if len({type(one) for one in ids}) > 1:
        ids = [str(one) for one in ids]
    log = _log(path, rows, deadline_s, ids, cohort_size=_usual(rounds.values(), "enough"))
    return _with_availability(log, list(rounds.values()))


def _told(told: Sequence[Any], t: int) -> Iterable[Row]:
    """Yield a row of a journal, unless nothing is known of it."""
    client, outcome, latency_s, loss = told
    if outcome not in OUTCOMES or not isinstance(client, str | int):
        return
    low, high = LATENCY_RANGE
    if outcome != "failed" and not low <= float(latency_s) <= high:
        return
    number = math.nan if loss is None or not abs(float(loss)) <= LARGEST_LOSS else float(loss)
    how = OUTCOMES.index(outcome)
    yield Row(client, math.nan if how == FAILED else float(latency_s), how, number, float(t))  # type: ignore[arg-type]


def _usual(entries: Iterable[Entry], name: str) -> int | None:
    """Return what most rounds say."""
    values = [e[name] for e in entries if isinstance(e.get(name), int) and e[name] > 0]
    return int(np.median(values)) if values else None


def _with_availability(log: AnswerLog, entries: Sequence[Entry]) -> AnswerLog:
    """Return a log that says who could be chosen, as far as the journal does."""
    known = [e["available"] for e in entries if isinstance(e.get("available"), int)]
    part = float(np.mean(known)) / log.n_clients if known else 1.0
    log = replace(log, availability=min(max(part, 0.0), 1.0))
    listed = [e["available_ids"] for e in entries if isinstance(e.get("available_ids"), list)]
    if not listed or len(listed) * log.n_clients > MOST_CELLS:
        return log
    places = {one: k for k, one in enumerate(log.clients)}
    available = np.zeros((len(listed), log.n_clients), dtype=bool)
    for i, ids in enumerate(listed):
        who = [places[x] for x in ids if isinstance(x, str | int) and x in places]
        available[i, who] = True
    return replace(log, available=available)
