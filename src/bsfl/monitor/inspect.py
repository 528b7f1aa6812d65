"""What a scheduler knows, as a table by client and as a text."""

from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.estimation.ledger import Ledger
from bsfl.extras import data_frame
from bsfl.fairness import gini
from bsfl.monitor.words import figure, named, seconds
from bsfl.records import BoolArray, FloatArray
from bsfl.scheduling.clients import ClientTable
from bsfl.scheduling.last_round import LastRound
from bsfl.scheduling.outstanding import Outstanding
from bsfl.state import take_over

PRINTED = 20
"""Clients that a table prints."""
SHOWN = 3
"""Clients that a summary names of a kind."""
ENOUGH = 1.0
"""Answers that a client should have had before its share says something."""


class ClientRows(list[dict[str, Any]]):
    """One dict for every client; `to_frame()` makes a pandas table of them."""

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame, by client."""
        return data_frame(list(self), COLUMNS).set_index("client")

    def __str__(self) -> str:
        """Return the first rows in columns, for a look."""
        lines = [list(COLUMNS), *map(_texts, self[:PRINTED])]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        told = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        more = len(self) - PRINTED
        return "\n".join([*told, *([f"and {more:,} more"] if more > 0 else [])])


def _texts(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row.

    >>> _texts({"client": "phone-7", "member": True, "latency_s": 41.26, "share": None})
    ['phone-7', 'yes', '41.3', '-']
    """
    words: dict[Any, str] = {None: "-", True: "yes", False: "no"}
    numbers = {name: figure(x) for name, x in row.items() if type(x) in (int, float)}
    numbers |= {name: words[x] for name, x in row.items() if x is None or isinstance(x, bool)}
    return [named(row["client"]), *(numbers[name] for name in row if name != "client")]


COLUMNS = {
    "client": "its id",
    "member": "whether it belongs to the fleet now",
    "latency_s": "seconds it usually takes, the median; None: it never answered",
    "low_s": "8 of 10 answers come between this",
    "high_s": "and this",
    "answers": "answers that entered the model",
    "late": "answers that came when the round was over",
    "timeouts": "times that it missed the deadline",
    "failures": "times that it failed",
    "awaited": "answers that it owes",
    "share": "answers in the model over its fair number by opportunity; None: it had no chance yet",
    "last_chosen": "the round in which it was chosen last; None: never",
}
"""What a row holds."""


def rows(clients: ClientTable, ledger: Ledger, awaited: Outstanding) -> ClientRows:
    """Return one row for every client ever met, in the order in which they joined."""
    ledger = grown(ledger, len(clients))
    middle, low, high = ledger.latencies()
    owed = np.zeros(len(clients), dtype=np.int64)
    for k in awaited:
        owed[k] = awaited.n_owed(k)
    columns = {
        "client": clients.ids,
        "member": clients.column("member").tolist(),
        "latency_s": _told(middle),
        "low_s": _told(low),
        "high_s": _told(high),
        "answers": (ledger.answered - ledger.late).tolist(),
        "late": ledger.late.tolist(),
        "timeouts": (ledger.missed - ledger.failed).tolist(),
        "failures": ledger.failed.tolist(),
        "awaited": owed.tolist(),
        "share": _told(ledger.shares()),
        "last_chosen": [t or None for t in ledger.last_chosen.tolist()],
    }
    names = tuple(columns)
    return ClientRows(
        dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)
    )


def grown(ledger: Ledger, n_clients: int) -> Ledger:
    """Return a ledger with rows for clients that joined since the last round, too."""
    if len(ledger.answered) == n_clients:
        return ledger
    longer = Ledger.of(n_clients)
    take_over(ledger, longer, n_clients)
    return longer


def _told(values: FloatArray) -> list[float | None]:
    """Return numbers, None where there is none."""
    told: npt.NDArray[Any] = values.astype(object)
    told[np.isnan(values)] = None
    return told.tolist()  # type: ignore[no-any-return]


def summary(
    *,
    title: str,
    clients: ClientTable,
    ledger: Ledger,
    awaited: Outstanding,
    last: LastRound | None,
    figures: dict[str, float],
) -> str:
    """Return what a scheduler knows, in a few lines."""
    ledger = grown(ledger, len(clients))
    member: BoolArray = clients.column("member")
    n_left = len(clients) - clients.n_members
    fleet = f"{clients.n_members:,} clients, {_n(member & (ledger.n_timed > 0)):,} have answered"
    lines = {"fleet": fleet + f"; {n_left:,} left" * bool(n_left), "last round": _last(last)}
    lines |= _speed(clients, ledger, member)
    lines["overdue"] = _overdue(clients, awaited, last)
    lines["evenness"] = _evenness(ledger, member)
    if figures:
        found = (f"{name.replace('_', ' ')} {figure(value)}" for name, value in figures.items())
        lines["found"] = ", ".join(found)
    return "\n".join([title, *(f"  {name:<11}{text}" for name, text in lines.items())])


def _n(which: BoolArray) -> int:
    return int(np.count_nonzero(which))


def _last(last: LastRound | None) -> str:
    if last is None:
        return "none yet"
    record = last.record([""] * (int(last.cohort.max(initial=-1)) + 1))
    text = f"{record.n_answered or 0:,} of {len(last.cohort):,} answered"
    text += "" if record.duration_s is None else f" in {seconds(record.duration_s)}"
    others = {
        "timed out": record.n_timeouts,
        "failed": record.n_failed,
        "late": record.n_late,
        "awaited": _n(last.outcome < 0),
    }
    return text + "".join(f", {n:,} {name}" for name, n in others.items() if n)


def _speed(clients: ClientTable, ledger: Ledger, member: BoolArray) -> dict[str, str]:
    """Return the clients that usually take shortest and longest."""
    known = np.flatnonzero(member & (ledger.n_timed > 0))
    if not len(known):
        return {}
    order = known[np.argsort(ledger.log_latency[known], kind="stable")]
    middle, low, high = ledger.latencies()

    def text(which: Any) -> str:
        return ", ".join(
            f"{named(clients.ids[k])} {seconds(middle[k], low[k], high[k])}" for k in which
        )

    fastest = {"fastest": text(order[:SHOWN])}
    slowest = order[SHOWN:][::-1][:SHOWN]
    return fastest | ({"slowest": text(slowest)} if len(slowest) else {})


def _overdue(clients: ClientTable, awaited: Outstanding, last: LastRound | None) -> str:
    """Return who owes an answer to a round that others have overtaken, longest first."""
    since = {k: t for k in awaited if (t := awaited.oldest(k)) is not None and last and t < last.t}
    if not since:
        return "nobody"
    longest = sorted(since, key=lambda k: (since[k], k))[:SHOWN]
    text = ", ".join(f"{named(clients.ids[k])} since round {since[k]:,}" for k in longest)
    return f"{len(since):,} clients: {text}" + ", ..." * (len(since) > SHOWN)


def _evenness(ledger: Ledger, member: BoolArray) -> str:
    shares = ledger.shares()[member & (ledger.opportunity >= ENOUGH)]
    if not len(shares):
        return "too early to say"
    least = float(np.sort(shares)[: max(1, len(shares) // 10)].mean())
    return f"Gini {gini(shares):.2f}; the least served tenth has {least:.2f} of its fair share"
