"""A CSV of responses as servers write it: which column is which, and what its cells mean."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bsfl import validation
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
MEANINGS = {"ok": OK, "timeout": TIMEOUT, "failed": FAILED, "late": OK}
"""What a word of the user's own can mean."""
NOTHING = ("", "nan", "none", "null", "na", "n/a", "inf", "-")
"""Cells for a latency or a loss that is not known."""
DECIMAL_COMMA, NUMBERS = ";\t", ("latency", "loss", "time", "round")
"""Delimiters beside which a comma can be a decimal one, and the columns that may hold it."""
LONG_S = 3600.0
"""Median latency above which a column without a unit may be in milliseconds."""
DATES = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%d %b %Y", "%d/%b/%Y")
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", ":%H:%M:%S")
ZONES = ("", " %z", " %Z")
"""Formats of dates beside ISO 8601, with any clock and any zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How to read a CSV; None: guessed.

    Attributes:
        client, latency, outcome, time, loss: Names of the columns.
        unit: Unit of the latency, such as "ms"; None: as in the name of its column, or seconds.
        outcomes: Further words for outcomes, each with ok, timeout, failed or late.
    """

    client: str | None = None
    latency: str | None = None
    outcome: str | None = None
    time: str | None = None
    loss: str | None = None
    unit: str | None = None
    outcomes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.unit is not None:
            validation.one_of("unit", self.unit, tuple(UNITS))
        for word, meaning in self.outcomes.items():
            validation.one_of(f"outcome {quoted(word)!r}", meaning, tuple(MEANINGS))

    def columns(self) -> dict[str, str]:
        """Return the names of the columns that are given."""
        named = {what: getattr(self, what) for what in SPELLINGS if what != "round"}
        return {what: name for what, name in named.items() if name is not None}

    def outcome_words(self) -> dict[str, int]:
        """Return what each word for an outcome means."""
        own = {_plain(word): MEANINGS[meaning] for word, meaning in self.outcomes.items()}
        return OUTCOME_WORDS | own


class Row(NamedTuple):
    """One invitation with its response, if it came; NaN: not known. `at` orders the rows."""

    client: str
    latency_s: float
    outcome: int
    loss: float
    at: float


class Rows(NamedTuple):
    """The rows of a CSV, in its order, how its columns were read, and whether one was ignored."""

    rows: list[Row]
    notes: list[str]
    warning: str


def read_csv(path: Path, layout: CsvFormat) -> Rows:
    """Return the rows of a CSV with a header."""
    rows: list[Row] = []
    moments: dict[str, list[str]] = {"time": [], "round": []}
    with open_rows(path) as (names, lines, delimiter):
        places = located(path, names, layout)
        stated = split_unit(_plain(names[places["latency"]]))[1]
        unit, words = layout.unit or stated or "s", layout.outcome_words()
        for line, cells in lines:
            row = {what: cells[i].strip() for what, i in places.items()}
            if delimiter in DECIMAL_COMMA:
                row |= {what: with_point(row[what]) for what in NUMBERS if what in row}
            rows.append(_row(f"{path}, line {line}", row, words, UNITS[unit]))
            for what, texts in moments.items():
                if what in row:
                    texts.append(row[what])
    if not (layout.unit or stated):
        _check_unit(path, rows)
    units = {"latency": f" in {unit}"}
    read = {what: quoted(names[i]) for what, i in places.items() if what != "round"}
    found = {what: parsed for what in moments if (parsed := moments_of(moments[what])) is not None}
    warning = ""
    if "time" in read and "time" not in found:
        name, order = read.pop("time"), "round" if found else "file"
        warning = (
            f"column {name!r} is ignored because its cells are no numbers and no dates of one "
            f"format, so rows are in the order of the {order}"
        )
    notes = [f"{what} from {name!r}{units.get(what, '')}" for what, name in read.items()]
    if found:
        at = found.get("time", found.get("round", []))
        rows = [row._replace(at=moment) for row, moment in zip(rows, at, strict=True)]
    return Rows(rows, notes, warning)


def has_responses(path: Path) -> bool:
    """Return whether a file is a log of responses with more columns than client,latency_s."""
    with open_rows(path) as (names, *_):
        is_log = {"client", "latency"} <= _guessed(names, {}).keys()
        return is_log and names[1:] != ["latency_s"]


def located(path: Path, names: Sequence[str], layout: CsvFormat) -> dict[str, int]:
    """Return where each column is that was named or can be guessed; client and latency must be."""
    places: dict[str, int] = {}
    for what, name in layout.columns().items():
        if name not in names:
            raise InvalidInput(
                f"{path}: there is no column {quoted(name)!r}; the first line is {_listed(names)}"
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
    """Return a plain name without a unit at its end, and the unit; "" if there is none.

    >>> split_unit("latency_ms"), split_unit("duration"), split_unit("seconds")
    (('latency', 'ms'), ('duration', ''), ('seconds', 'seconds'))
    """
    head, _, tail = name.rpartition("_")
    return (head or tail, tail) if tail in UNITS else (name, "")


def _row(place: str, row: Mapping[str, str], words: Mapping[str, int], unit: float) -> Row:
    """Return what the cells of a row mean; a unit has so many seconds."""
    check_name(place, row["client"])
    word, latency = row.get("outcome", "ok"), row["latency"]
    if (outcome := words.get(_plain(word))) is None:
        raise InvalidInput(
            f"{place}: the outcome must be ok, timeout, failed or late, got {quoted(word)!r}; say "
            f"what it means with --outcome, as in --outcome {quoted(word) or 'WORD'}=failed"
        )
    if outcome == OK and latency.lower() in NOTHING:
        raise InvalidInput(
            f"{place}: a response needs its latency, got {quoted(latency)!r}; one that never "
            "came needs a column with its outcome, such as timeout"
        )
    if outcome == FAILED:
        latency = ""  # the time of an error says nothing about the time of the work
    low, high = LATENCY_RANGE
    return Row(
        client=row["client"],
        latency_s=_number(place, "latency", latency, low / unit, high / unit) * unit,
        outcome=outcome,
        loss=_number(place, "loss", row.get("loss", ""), -MAX_LOSS, MAX_LOSS),
        at=math.nan,
    )


def _number(place: str, name: str, text: str, low: float, high: float) -> float:
    return math.nan if text.lower() in NOTHING else as_number(place, name, text, low, high)


def with_point(text: str) -> str:
    """Return a number with a decimal point for its comma, and any other text as it is.

    >>> with_point("3,25"), with_point("1.234,5"), with_point("2.5")
    ('3.25', '1.234,5', '2.5')
    """
    return text.replace(",", ".") if re.fullmatch(r"-?\d+,\d+", text) else text


def _check_unit(path: Path, rows: Sequence[Row]) -> None:
    """Check that latencies whose unit is not stated look like seconds."""
    known = [row.latency_s for row in rows if row.latency_s == row.latency_s]
    middle = float(np.median(known)) if known else 0.0
    if middle > LONG_S:
        raise InvalidInput(
            f"{path}: the median latency is {middle:,.0f} without a unit, which looks like "
            "milliseconds; say --unit ms or --unit s, or name the column latency_ms or latency_s"
        )


def moments_of(texts: Sequence[str]) -> list[float] | None:
    """Return numbers that order moments: numbers as they are, or dates of one common format.

    Of several formats that fit all dates, as 05/06/2024 has, it is the one in which the fewest
    rows are earlier than the row before them. None: there are no moments, or no format fits.

    >>> moments_of(["1970-01-01T00:01:00Z"]), moments_of(["17"]), moments_of(["17", "noon"])
    ([60.0], [17.0], None)
    >>> moments_of(["01.01.1970 00:02", "31.12.1969 23:59"])
    [120.0, -60.0]
    """
    found = [*_fitting(texts)] if texts else []
    return min(found, key=lambda at: np.count_nonzero(np.diff(at) < 0), default=None)


def _fitting(texts: Sequence[str]) -> Iterator[list[float]]:
    """Yield the moments by every format that fits all texts; without a zone they are in UTC."""
    try:
        numbers = [float(text) for text in texts]
        if np.isfinite(numbers).all():
            yield numbers
        return
    except ValueError:
        pass  # they may be dates
    formats = [f"{date}{clock}{zone}" for date in DATES for clock in CLOCKS for zone in ZONES]
    for parse in (
        datetime.fromisoformat,
        *(lambda text, form=form: datetime.strptime(text, form) for form in formats),
    ):
        try:
            dates = [parse(text) for text in texts]
        except ValueError:
            continue
        yield [(one if one.tzinfo else one.replace(tzinfo=UTC)).timestamp() for one in dates]


def _plain(name: str) -> str:
    """Return a name in lower case with single underscores.

    >>> _plain(" Client-ID "), _plain("Latency (ms)"), _plain("trainTime")
    ('client_id', 'latency_ms', 'train_time')
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")


def _listed(names: Sequence[str]) -> str:
    return quoted(",".join(names)) or "empty"
