"""Reads logs, from a CSV or a journal of a Scheduler."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import validation
from bsfl._core.clients import clean_id
from bsfl.advisor.log import ResponseLog, log_of
from bsfl.errors import InvalidInput, reason
from bsfl.experiments.parts import at
from bsfl.monitoring.journal import START, Entry, journal_files, read_journal
from bsfl.persistence.regular_file import open_regular
from bsfl.persistence.statefile import MAGIC
from bsfl.simulation.client_rows import MAX_ROWS, quoted
from bsfl.simulation.response_log import CsvFormat, Row, read_csv
from bsfl.types import FAILED, LATENCY_RANGE, MAX_LOSS, OUTCOMES, BoolArray, ClientId

MOST_CELLS = 100_000_000
"""Maximum rounds x clients of recorded availability; above it, only the mean is used."""


def read_log(
    path: Path,
    *,
    deadline_s: float | None = None,
    layout: CsvFormat | None = None,
    ids: str = "auto",
) -> ResponseLog:
    """Read a CSV with a header, or a journal of a Scheduler.

    Args:
        path: The file; for a journal, its newest file.
        deadline_s: Latency above which a response is late; None: from the log.
        layout: How to read a CSV, as far as it cannot be guessed.
        ids: Type of the ids in a CSV: "text", "int", or "auto": int if all ids are integers.
    """
    validation.one_of("ids", ids, ("auto", "text", "int"))
    if deadline_s is not None:
        validation.seconds("deadline", deadline_s)
    if is_journal(path):
        return _journal_log(path, deadline_s)
    rows, notes, warning = read_csv(path, layout or CsvFormat())
    if not any(math.isnan(row.at) for row in rows):
        rows.sort(key=lambda row: row.at)
    names = _ids(path, [row.client for row in rows], ids)
    with at(str(path)):
        return log_of(rows, deadline_s, names, notes=notes, warning=warning)


def is_journal(path: Path) -> bool:
    """Return whether a file starts like a journal."""
    try:
        with open_regular(journal_files(path)[-1]) as file:
            start = file.read(max(len(START), len(MAGIC)))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {reason(error)}") from None
    if start.startswith(MAGIC):
        raise InvalidInput(
            f"{path} is a saved scheduler (bsfl inspect shows it); advice needs a log of "
            "responses: a CSV with client and latency, or a journal of Scheduler(journal=...)"
        )
    return start.startswith(START)


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
    with at(str(path)):
        log = log_of(rows, deadline_s, ids, cohort_size=size)
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
