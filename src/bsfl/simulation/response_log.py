"""A CSV of responses as servers write it: which column is which, and what its cells mean."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bsfl.errors import InvalidInput
from bsfl.simulation.client_rows import as_number, check_name, open_rows, quoted
from bsfl.types import FAILED, LATENCY_RANGE, MAX_LOSS, OK, TIMEOUT

SPELLINGS: Mapping[str, Sequence[str]] = {
    "client": (
        *("client", "client_id", "clientid", "cid", "device", "device_id", "node", "node_id"),
        *("participant", "worker", "user", "partition_id", "party", "site", "name", "id"),
    ),
    "latency": (
        *("latency", "duration", "elapsed", "round_trip", "rtt", "response_time", "answer_time"),
        *("fit_time", "train_time", "training_time", "compute_time", "time_taken", "seconds"),
    ),
    "outcome": ("outcome", "status", "result", "state", "success", "succeeded", "ok"),
    "time": ("timestamp", "time", "ts", "datetime", "date", "at", "created_at", "started_at"),
    "loss": ("loss", "train_loss", "training_loss", "local_loss"),
    "round": ("round", "server_round", "round_id", "t", "step", "iteration"),
}
"""Names of each column, likelier first, in any case and with any unit at the end."""
UNITS = {
    **dict.fromkeys(("ns",), 1e-9),
    **dict.fromkeys(("us", "micros", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minutes"), 60.0),
}
"""Seconds in a unit at the end of a name, as in latency_ms."""
OUTCOME_WORDS = {
    **dict.fromkeys(("ok", "success", "succeeded", "completed", "complete", "done"), OK),
    **dict.fromkeys(("finished", "true", "yes", "1", "200", "answered", "good"), OK),
    **dict.fromkeys(("timeout", "timed_out", "timedout", "deadline", "expired"), TIMEOUT),
    **dict.fromkeys(("straggler", "no_answer", "overdue", "408", "504"), TIMEOUT),
    **dict.fromkeys(("failed", "failure", "fail", "error", "crashed", "dropped", "lost"), FAILED),
    **dict.fromkeys(("false", "no", "0", "500", "disconnected", "aborted", "bad"), FAILED),
    "late": OK,
}
NOTHING = ("", "nan", "none", "null", "na", "n/a", "inf", "-")
"""Cells for a latency or a loss that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the columns of a CSV; None: guessed from common spellings."""

    client: str | None = None
    latency: str | None = None
    outcome: str | None = None
    time: str | None = None
    loss: str | None = None


class Row(NamedTuple):
    """One invitation with its response, if it came; NaN: not known. `at` is its time."""

    client: str
    latency_s: float
    outcome: int
    loss: float
    at: float


def read_csv(path: Path, columns: Columns) -> list[Row]:
    """Return the rows of a CSV with a header, in its order."""
    with open_rows(path) as (names, rows):
        places = located(path, names, columns)
        _, unit = split_unit(_plain(names[places["latency"]]))
        found = []
        for line, cells in rows:
            found.append(_row(f"{path}, line {line}", cells, places, UNITS[unit]))
        return found


def has_responses(path: Path) -> bool:
    """Return whether a file is a log of responses with more columns than client,latency_s."""
    with open_rows(path) as (names, _):
        is_log = {"client", "latency"} <= _guessed(names, {}).keys()
        return is_log and names[1:] != ["latency_s"]


def columns_read(path: Path, columns: Columns) -> list[str]:
    """Return in words which columns `read_csv` uses, with the unit of the latency."""
    with open_rows(path) as (names, _):
        found = {what: names[i] for what, i in located(path, names, columns).items()}
    units = {"latency": f" in {split_unit(_plain(found['latency']))[1]}"}
    return [f"{what} from {quoted(one)!r}{units.get(what, '')}" for what, one in found.items()]


def located(path: Path, names: Sequence[str], columns: Columns) -> dict[str, int]:
    """Return where each column is that was named or can be guessed; client and latency must be."""
    places: dict[str, int] = {}
    for what, name in asdict(columns).items():
        if name is not None:
            if name not in names:
                raise InvalidInput(
                    f"{path}: there is no column {quoted(name)!r}; "
                    f"the first line is {_listed(names)}"
                )
            places[what] = names.index(name)
    places = _guessed(names, places)
    for what in ("client", "latency"):
        if what not in places:
            raise InvalidInput(
                f"{path}: no column looks like the {what}; the first line must name the columns, "
                f"and is {_listed(names)}; say which one it is with --{what}-column"
            )
    return places


def _guessed(names: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """Return where columns are: the known ones, and those with a usual name."""
    plain = [_plain(name) for name in names]
    bare = [split_unit(name)[0] for name in plain]
    places = dict(known)
    for what, spellings in SPELLINGS.items():
        if what in places:
            continue
        free = [i for i in range(len(names)) if i not in places.values()]
        found = (i for one in spellings for i in free if one in (plain[i], bare[i]))
        if (place := next(found, None)) is not None:
            places[what] = place
    return places


def split_unit(name: str) -> tuple[str, str]:
    """Return a plain name without a unit at its end, and the unit; seconds if there is none.

    >>> split_unit("latency_ms"), split_unit("duration"), split_unit("seconds")
    (('latency', 'ms'), ('duration', 's'), ('seconds', 'seconds'))
    """
    head, _, tail = name.rpartition("_")
    return (head or tail, tail) if tail in UNITS else (name, "s")


def _row(place: str, cells: Sequence[str], places: Mapping[str, int], unit: float) -> Row:
    """Return what the cells of a row mean; a unit has so many seconds."""
    row = {what: cells[i].strip() for what, i in places.items()}
    check_name(place, row["client"])
    word, latency = row.get("outcome", "ok"), row["latency"]
    if (outcome := OUTCOME_WORDS.get(_plain(word))) is None:
        raise InvalidInput(
            f"{place}: the outcome must be ok, timeout, failed or late, got {quoted(word)!r}"
        )
    if outcome == OK and latency.lower() in NOTHING:
        raise InvalidInput(
            f"{place}: a response needs its latency, got {quoted(latency)!r}; one that never "
            "came needs a column with its outcome, such as timeout"
        )
    if outcome == FAILED:
        latency = ""  # the time of an error says nothing about the time of the work
    low, high = LATENCY_RANGE
    when = row.get("time") or row.get("round") or ""
    return Row(
        client=row["client"],
        latency_s=_number(place, "latency", latency, low / unit, high / unit) * unit,
        outcome=outcome,
        loss=_number(place, "loss", row.get("loss", ""), -MAX_LOSS, MAX_LOSS),
        at=_moment(place, when) if when else math.nan,
    )


def _number(place: str, name: str, text: str, low: float, high: float) -> float:
    return math.nan if text.lower() in NOTHING else as_number(place, name, text, low, high)


def _moment(place: str, text: str) -> float:
    """Return a number that orders moments: seconds of any origin, a round, or a date in ISO 8601.

    >>> _moment("", "1970-01-01T00:01:00Z"), _moment("", "17")
    (60.0, 17.0)
    """
    try:
        moment = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text)
            # without a zone it is read as UTC, so that the zone of this machine does not matter
            moment = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            moment = math.nan
    if not math.isfinite(moment):
        raise InvalidInput(
            f"{place}: the time must be a number or a date such as 2024-05-31T12:00:00, "
            f"got {quoted(text)!r}"
        )
    return moment


def _plain(name: str) -> str:
    """Return a name in lower case with single underscores.

    >>> _plain(" Client-ID "), _plain("Latency (ms)"), _plain("trainTime")
    ('client_id', 'latency_ms', 'train_time')
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")


def _listed(names: Sequence[str]) -> str:
    return quoted(",".join(names)) or "empty"
