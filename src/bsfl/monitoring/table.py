"""What a scheduler knows, as a table by client and as a few lines of text."""

from typing import Any

import numpy as np

from bsfl._core.engine import Engine
from bsfl._core.pool import PoolView
from bsfl._core.rounds import Round
from bsfl._core.task import TaskView
from bsfl.estimators.fairness import gini
from bsfl.extras import data_frame
from bsfl.monitoring.words import figure, named, optional, results, seconds
from bsfl.types import BoolArray, IntArray

N_PRINTED = 20
"""Rows that a printed table shows."""
N_NAMED = 3
"""Clients that a summary names of a kind."""
MIN_FAIR_COUNT = 1.0
"""Fair count from which a participation ratio says something."""

COLUMNS = {
    "client": "its id",
    "member": "whether it is a member now",
    "online": "whether it can be selected now",
    "latency_s": "median latency in seconds; None: it never responded",
    "low_s": "lower end of the 80 % interval of its next latency",
    "high_s": "upper end of the 80 % interval of its next latency",
    "invitations": "how often it was selected",
    "participations": "how many of its responses were aggregated",
    "late": "responses that came after their round had closed",
    "timeouts": "missed deadlines",
    "failures": "failures",
    "pending": "responses that have not been reported yet",
    "participation_ratio": "participations over its fair count; None: it could not be selected yet",
    "last_selected": "the round in which it was selected last; None: never",
}
"""What a row holds."""


class ClientRows(list[dict[str, Any]]):
    """One dict for every client; `to_frame()` makes a pandas table of them."""

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame, by client."""
        return data_frame(list(self), COLUMNS).set_index("client")

    def __str__(self) -> str:
        """Return the first rows in columns."""
        lines = [list(COLUMNS), *map(_texts, self[:N_PRINTED])]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        more = len(self) - N_PRINTED
        return "\n".join([*shown, *([f"and {more:,} more"] if more > 0 else [])])


def _texts(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row.

    >>> _texts({"client": "phone-7", "member": True, "latency_s": 41.26, "low_s": None})
    ['phone-7', 'yes', '41.3', '-']
    """
    words: dict[Any, str] = {None: "-", True: "yes", False: "no"}
    numbers = {name: figure(x) for name, x in row.items() if type(x) in (int, float)}
    numbers |= {name: words[x] for name, x in row.items() if x is None or isinstance(x, bool)}
    return [named(row["client"]), *(numbers[name] for name in row if name != "client")]


def rows(engine: Engine, names: list[Any], clients: IntArray | None = None) -> ClientRows:
    """Return one row for each client; None: for all, in the order of joining."""
    pool, task = engine.views()
    where: Any = slice(None) if clients is None else clients
    indices = range(len(names)) if clients is None else clients.tolist()
    middle, low, high = pool.latencies(where)
    columns: dict[str, list[Any]] = {
        "client": [names[k] for k in indices],
        "member": engine.pool.member[: len(pool)][where].tolist(),
        "online": engine.pool.online[: len(pool)][where].tolist(),
        "latency_s": optional(middle),
        "low_s": optional(low),
        "high_s": optional(high),
        "invitations": task.invitations[where].tolist(),
        "participations": task.participations[where].tolist(),
        "late": pool.late[where].tolist(),
        "timeouts": (pool.missed - pool.failed)[where].tolist(),
        "failures": pool.failed[where].tolist(),
        "pending": [len(engine.rounds.pending_rounds(k)) for k in indices],
        "participation_ratio": optional(task.participation_ratio()[where]),
        "last_selected": [t or None for t in task.last_selected[where].tolist()],
    }
    return ClientRows(
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    )


def summary(title: str, engine: Engine, names: list[Any]) -> str:
    """Return what is known in a few lines."""
    pool, task = engine.views()
    member: BoolArray = engine.pool.member[: len(pool)]
    n_left = len(pool) - pool.n_members
    n_responded = int(np.count_nonzero(member & (pool.n_timed > 0)))
    text = f"{pool.n_members:,} members, {n_responded:,} have responded"
    lines = {
        "clients": text + f"; {n_left:,} left" * bool(n_left),
        "last round": _last_round(engine.rounds.latest, names),
        **_speed(names, pool, member),
        "overdue": _overdue(engine, names),
        "fairness": _fairness(task, member),
    }
    if learned := engine.diagnostics():
        lines["learned"] = ", ".join(
            f"{name.replace('_', ' ')} {figure(value)}" for name, value in learned.items()
        )
    return "\n".join([title, *(f"  {name:<11}{text}" for name, text in lines.items())])


def _last_round(one: Round | None, names: list[Any]) -> str:
    if one is None:
        return "none yet"
    n_pending = len(one.pending)
    return results(one.record(names)) + f", {n_pending:,} pending" * bool(n_pending)


def _speed(names: list[Any], pool: PoolView, member: BoolArray) -> dict[str, str]:
    """Return the fastest and the slowest clients."""
    known = np.flatnonzero(member & (pool.n_timed > 0))
    if not len(known):
        return {}
    order = known[np.argsort(pool.log_latency[known], kind="stable")]
    middle, low, high = pool.latencies()

    def text(clients: IntArray) -> str:
        return ", ".join(
            f"{named(names[k])} {seconds(middle[k], low[k], high[k])}" for k in clients.tolist()
        )

    fastest = {"fastest": text(order[:N_NAMED])}
    slowest = order[N_NAMED:][::-1][:N_NAMED]
    return fastest | ({"slowest": text(slowest)} if len(slowest) else {})


def _overdue(engine: Engine, names: list[Any]) -> str:
    """Return the clients that are pending in a round before the last one, longest first."""
    rounds, last = engine.rounds, engine.task.round
    since = {k: n for k in rounds.in_flight if (n := rounds.pending_rounds(k)[0]) < last}
    if not since:
        return "none"
    longest = sorted(since, key=lambda k: (since[k], k))[:N_NAMED]
    text = ", ".join(f"{named(names[k])} since round {since[k]:,}" for k in longest)
    return f"{len(since):,} clients: {text}" + ", ..." * (len(since) > N_NAMED)


def _fairness(task: TaskView, member: BoolArray) -> str:
    ratio = task.participation_ratio()[member & (task.fair_count >= MIN_FAIR_COUNT)]
    if not len(ratio):
        return "too few rounds"
    least = float(np.sort(ratio)[: max(1, len(ratio) // 10)].mean())
    return (
        f"Gini {gini(ratio):.2f}; the tenth that takes part least has a participation ratio of "
        f"{least:.2f}"
    )
