"""The charts of the live page: rounds over time, and clients by latency and participation."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl.dashboard.charts import from_zero, logarithmic
from bsfl.dashboard.sums import HOURS, Sums, is_short, largest
from bsfl.html import Markup, render
from bsfl.types import FloatArray, IntArray

N_BARS = 120
"""Bars of a chart over time; of more rounds each bar is the mean of several."""
MANY_CLIENTS, N_CELLS = 2000, (48, 24)
"""Clients from which on a chart shows their density, and in how many cells."""
N_ATTENTION, N_LABELS = 15, 3
"""Of many clients, how many of each kind have a mark; and how many have their name beside it."""
FEW = 3
"""Invitations from which on a client among many is reported as unreliable."""
RELIABLE, UNRELIABLE = 0.9, 0.5
"""Response rates from which and below which a client has another colour."""
FEW_HOURS = 4
"""Hours of the day with rounds from which availability is drawn by hour."""

Estimate = tuple[float, float, float]
"""Mean duration of rounds with random selection, and its 95 % interval."""


def durations(sums: Sums, estimate: Estimate | None) -> Markup:
    """Return the durations of rounds, with what random selection would take as a band."""
    charts = []
    for name, rounds in _spans(sums):
        known = ~np.isnan(rounds["duration_s"])
        short = is_short(rounds)
        mean_s = _sums(np.nan_to_num(rounds["duration_s"])) / np.maximum(_sums(known), 1)
        part = _sums(short) / _sums(np.ones_like(short))
        axis = from_zero(mean_s, estimate[2] if estimate else 0.0)
        height = axis.at(mean_s)
        columns = (x.tolist() for x in (height, height * part, mean_s, 100 * part))
        bars = list(zip(_names(rounds), *columns, strict=True))
        band = [float(axis.at(x)) for x in estimate] if estimate else None
        charts.append((name, axis, bars, band))
    return render("durations.html", charts=charts)


def outcomes(sums: Sums) -> Markup:
    """Return which part of the invitations had a late, a lost or no response, over time."""
    charts = []
    for name, rounds in _spans(sums):
        invited = np.maximum(_sums(rounds["n_invited"]), 1)
        fresh, late, lost = (
            100 * _sums(rounds[one]) / invited for one in ("n_fresh", "n_late", "n_lost")
        )
        silent = (100 - fresh - late - lost).clip(min=0.0)
        axis = from_zero(late + lost + silent, least=4.0)
        columns = (x.tolist() for x in (lost, silent, late))
        heights = [*zip(*(axis.at(x).tolist() for x in (lost, silent, late)), strict=True)]
        bars = list(zip(_names(rounds), heights, *columns, strict=True))
        charts.append((name, axis, bars))
    return render("outcomes.html", charts=charts)


def _spans(sums: Sums) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the last rounds, and all rounds if there are more."""
    rounds = sums.rounds.table
    if len(rounds):
        yield "last", rounds[-N_BARS:]
    if len(rounds) > N_BARS:
        yield "all", rounds


def _sums(values: npt.NDArray[Any]) -> FloatArray:
    """Return the sum of each bar."""
    return np.add.reduceat(values.astype(np.float64), _starts(len(values)))


def _starts(n: int) -> IntArray:
    return np.arange(0, n, -(-n // N_BARS))


def _names(rounds: npt.NDArray[Any]) -> list[str]:
    """Return which rounds each bar is of."""
    starts = _starts(len(rounds))
    ends = np.append(starts[1:], len(rounds)) - 1
    pairs = zip(rounds["round"][starts].tolist(), rounds["round"][ends].tolist(), strict=True)
    return [f"round {a:,}" if a == b else f"rounds {a:,} to {b:,}" for a, b in pairs]


def clients(sums: Sums) -> Markup:
    """Return latency against participation ratio, one mark for each client."""
    rows = sums.invited()
    latency_s, _, _ = sums.latencies(rows)
    known = np.isfinite(latency_s)
    if not known.any():
        return render("clients.html", n=0)
    ratios, rates = sums.ratios(rows), sums.response_rates(rows)
    x_axis, y_axis = logarithmic(latency_s[known]), from_zero(ratios, least=2.0)
    kinds = np.select([rates < UNRELIABLE, rates < RELIABLE], ["bad", "mid"], "good")
    cells: list[tuple[float, float, float, int]] = []
    drawn = np.arange(len(rows))
    if len(rows) > MANY_CLIENTS:
        cells = _density(x_axis.at(latency_s[known]), 100.0 - y_axis.at(ratios[known]))
        drawn = _attention(sums, rows, rates)
    x, y = x_axis.at(np.where(known, latency_s, x_axis.high)), 100.0 - y_axis.at(ratios)
    order = np.lexsort((kinds[drawn] != "good", kinds[drawn] == "bad"))  # reliable ones behind
    marks = [
        (int(rows[i]), x[i], y[i], kinds[i] if known[i] else f"{kinds[i]} none")
        for i in drawn[order].tolist()
    ]
    costly = [i for i in largest(sums.clients.table["lost_s"][rows], N_LABELS) if known[i]]
    return render(
        "clients.html",
        n=len(rows),
        marks=marks,
        cells=cells,
        labels=[(x[i], y[i], sums.names[rows[i]]) for i in costly],
        x_axis=x_axis,
        y_axis=y_axis,
        fair=100.0 - float(y_axis.at(1.0)),
        n_silent=np.count_nonzero(~known),
        n_few=np.count_nonzero(ratios < 0.5),
        quantiles=np.quantile(latency_s[known], [0.5, 0.9, 1.0]).tolist(),
    )


def _density(x: FloatArray, y: FloatArray) -> list[tuple[float, float, float, int]]:
    """Return place, opacity and number of clients of the cells that hold any."""
    counts, *_ = np.histogram2d(x, y, bins=N_CELLS, range=((0.0, 100.0), (0.0, 100.0)))
    shade = 0.1 + 0.8 * np.log1p(counts) / math.log1p(counts.max())
    return [
        (100.0 * i / N_CELLS[0], 100.0 * j / N_CELLS[1], float(shade[i, j]), int(counts[i, j]))
        for i, j in np.argwhere(counts).tolist()
    ]


def _attention(sums: Sums, rows: IntArray, rates: FloatArray) -> IntArray:
    """Return the places of the clients that cost most time and of those that are unreliable."""
    own = sums.clients.table[rows]
    unreliable = np.where((rates < UNRELIABLE) & (own["n_invited"] >= FEW), own["n_invited"], 0)
    found = [largest(values, N_ATTENTION) for values in (own["lost_s"], unreliable)]
    return np.unique(np.concatenate(found))


def hours(sums: Sums) -> Markup:
    """Return how many clients were available, by hour of the day."""
    n = sums.n_by_hour
    mean = sums.n_available / np.maximum(n, 1)
    axis = from_zero(mean)
    is_drawn = np.count_nonzero(n) >= FEW_HOURS
    bars = list(zip(range(HOURS), axis.at(mean).tolist(), mean.tolist(), n.tolist(), strict=True))
    usual = float(sums.n_available.sum() / max(int(n.sum()), 1))
    return render("hours.html", bars=bars if is_drawn else [], axis=axis, usual=usual)
