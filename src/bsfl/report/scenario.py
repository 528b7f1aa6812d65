"""The report of one scenario: a table, and figures that answer the next questions."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bsfl.estimators.fairness import lorenz, participation
from bsfl.experiments.headline import headline
from bsfl.experiments.learning_spec import Learning
from bsfl.experiments.metrics import evaluated, find_target, selections
from bsfl.experiments.results import Results, read_manifest
from bsfl.experiments.statistics import seeds_in_words
from bsfl.experiments.summary import bound, summarise
from bsfl.experiments.tables import summary_table
from bsfl.learning.partition import Partition
from bsfl.report.plots import (
    BAND_SEEDS,
    Bars,
    Heat,
    Line,
    Mark,
    Panel,
    Plot,
    Points,
    Rule,
    curve,
)
from bsfl.report.report import Report
from bsfl.simulation.clients import SimulatedClients
from bsfl.types import FloatArray, IntArray, RoundPlan

N_POINTS = 300
"""Points of a curve; more cannot be seen."""
FIRST_LOGARITHMIC_ROUND = 10
"""Before it a logarithmic axis shows little but chance."""
N_BLOCKS = 40
"""Rows of a participation heat map: blocks of rounds in which every client could take part."""
MAX_CLIENTS = 200
"""Clients in a heat map or among points; of larger fleets every n-th is shown."""
SETTLING, MARGIN = 0.1, 0.05
"""Part of the time in which all curves climb alike, and margins above and below curves."""
MAX_BARS = 100
"""Clients with a bar."""


def scenario_report(results: Results) -> Report:
    """Return the report of finished results."""
    summary, scenario = summarise(results), results.scenario
    clients = results.simulated_clients(0)
    is_synchronous = isinstance(scenario.plan, RoundPlan)
    has_data = isinstance(scenario.learning, Learning)
    return Report(
        title=scenario.title,
        headline=[*headline(summary), *summary.warnings()],
        numbers=summary.as_json(),
        tables=[summary_table(summary, "report")],
        terminal_tables=[summary_table(summary, "training" if scenario.learning else "selection")],
        plots=[
            *([learning_plot(results)] if scenario.learning else ()),
            time_plot(results),
            *([regret_plot(results)] if scenario.objective else ()),
            heat_plot(results),
            *([learned_plot(results, clients)] if clients and is_synchronous else ()),
            *([data_plot(results, clients)] if clients and has_data else ()),
        ],
        details={"Scenario and versions": read_manifest(results.folder)},
    )


def learning_plot(results: Results) -> Plot:
    """Return test accuracy, where there is one, and test loss against virtual time."""
    target = find_target(results)
    has_accuracy = target.column == "test_accuracy"
    axes: dict[str, Any] = {"x": "virtual time (s)", "log": "" if has_accuracy else "y"}
    panels = []
    for column in ("test_accuracy", "test_loss") if has_accuracy else ("test_loss",):
        policies = results.scenario.policies
        curves = [curve(k, *learning_curves(results, k, column)) for k in policies]
        marks: list[Mark] = list(curves)
        is_target = column == target.column
        if is_target:
            marks.append(Rule(at=target.value, label=f"target {target}"))
        limits = None if axes["log"] else settled(curves, [target.value] * is_target)
        panels.append(Panel(y=column.replace("_", " "), marks=marks, y_range=limits, **axes))
    return Plot(
        name="learning",
        question="Which policy learns fastest?",
        caption=f"Quality of the model over virtual time. {_bands(results)} The first tenth of the "
        "time, where all curves climb alike, may lie outside.",
        panels=panels,
        title=_title(results),
    )


def learning_curves(results: Results, label: str, column: str) -> tuple[FloatArray, FloatArray]:
    """Return times and, at each, the value of the last evaluation before, [seed, time]."""
    runs = [evaluated(records) for records in results.records(label)]
    first = max(run["clock_s"][0] for run in runs)
    last = min(run["clock_s"][-1] for run in runs)
    times = np.linspace(min(first, last), last, N_POINTS)
    at = [np.searchsorted(run["clock_s"], times, side="right").clip(1) - 1 for run in runs]
    return times, np.stack([run[column][i] for run, i in zip(runs, at, strict=True)])


def settled(curves: list[Line], others: list[float]) -> tuple[float, float] | None:
    """Return limits of y that show curves after a tenth of the time, and some other values.

    >>> x, y = np.arange(21.0), np.array([0.0, 10.0, *[40.0] * 18, 50.0])
    >>> settled([Line(label="a", x=x, y=y)], [80.0])
    (38.0, 82.0)
    """
    values = [*others]
    for one in curves:
        late = one.y[one.x >= one.x[0] + SETTLING * (one.x[-1] - one.x[0])]
        values += late[np.isfinite(late)].tolist()
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    margin = MARGIN * (high - low)
    return (low - margin, high + margin) if margin > 0 else None


def time_plot(results: Results) -> Plot:
    """Return virtual time against rounds, and the distribution of participation."""
    even = np.array([0.0, 100.0])
    clocks, spread = [], [Line(label="all equal", x=even, y=even, is_grey=True)]
    for label in results.scenario.policies:
        clock = results.column(label, "clock_s")
        rounds = shown_rounds(clock.shape[1])
        clocks.append(curve(label, rounds, clock[:, rounds - 1]))
        share = 100 * lorenz(selections(results, label).mean(axis=0))
        spread.append(Line(label=label, x=np.linspace(0, 100, len(share)), y=share))
    limits = (
        0.0,
        (1 + 2 * MARGIN) * max(float(one.y.max()) for one in clocks),
    )  # no time is negative
    x, y = "clients, least served first (%)", "share of all participations (%)"
    return Plot(
        name="time",
        question="How long do rounds take, and which clients take part?",
        caption="Time: the flatter, the shorter the rounds. Participation: the nearer to the "
        f"straight line, the more evenly clients took part. {_bands(results)}",
        panels=[
            Panel(
                x="round", y="virtual time (s)", title="Time spent", marks=clocks, y_range=limits
            ),
            Panel(x=x, y=y, title="Participation (Lorenz curve)", marks=spread),
        ],
        title=_title(results),
    )


def regret_plot(results: Results) -> Plot:
    """Return cumulative regret against rounds, on plain and on logarithmic axes."""
    rounds = shown_rounds(results.scenario.rounds)
    late = rounds[rounds >= min(FIRST_LOGARITHMIC_ROUND, results.scenario.rounds)]
    curves = {k: results.cumulative(k, "regret") for k in results.scenario.policies}
    plain = [curve(k, rounds, own[:, rounds - 1]) for k, own in curves.items()]
    positive = {k: own[:, late - 1] for k, own in curves.items() if own[:, late - 1].min() > 0}
    log = [curve(k, late, own) for k, own in positive.items()]
    means = np.concatenate([one.y for one in log]) if log else np.zeros(0)
    span = (float(means.min()) / 2, float(means.max()) * 2) if len(means) else None
    limit = bound(results, late[-1:])[0]  # too large to be drawn
    allowed = f", Theorem 1 allows {limit:.0e}" if np.isfinite(limit) else ""
    axes: dict[str, Any] = {"x": "round", "y": "cumulative regret (reward units)"}
    return Plot(
        name="regret",
        question="How much is lost against an oracle that knows all speeds?",
        caption=f"How much more the oracle would have earned. {_bands(results)}",
        panels=[
            Panel(title="Regret against the oracle", marks=plain, **axes),
            Panel(
                title=f"Logarithmic: slope 1 is linear{allowed}",
                marks=log,
                log="xy",
                y_range=span,
                **axes,
            ),
        ],
        title=_title(results),
    )


def data_plot(results: Results, clients: SimulatedClients) -> Plot:
    """Return a bar for every client: its samples, stacked by label."""
    scenario = results.scenario
    assert isinstance(scenario.learning, Learning)
    split = scenario.learning.make_partition(scenario.clients.n_clients, seed=scenario.first_seed)
    shown = in_order(split.sizes, MAX_BARS)
    counts, names = split.histogram[shown].T, [clients.name(k) for k in shown]
    bars = [Bars(label=f"label {i}", names=names, height=own) for i, own in enumerate(counts)]
    return Plot(
        name="data",
        question="What data do clients hold?",
        caption=f"One bar for each client, with the first seed: {in_words(split)}",
        panels=[Panel(x="clients, small to large", y="samples", marks=bars)],
        title=in_words(split),
    )


def in_words(split: Partition) -> str:
    """Return a split in words: sizes, label skew, and errors in the data."""
    low, middle, high = np.percentile(split.sizes, [0, 50, 100])
    words = f"{split.n_clients:,} clients hold {low:,.0f} to {high:,.0f} samples"
    words += f" (median {middle:,.0f})"
    if split.n_labels > 1:
        words += f"; label skew {split.label_skew:.2f} (0: all alike, 1: one label each)"
    if np.any(split.quality < 1):
        words += f"; quality {split.quality.min():.2f} to {split.quality.max():.2f}"
    if np.any(split.label_noise > 0):
        words += f"; {split.label_noise.mean():.0%} of the labels are wrong"
    return words + "."


def heat_plot(results: Results) -> Plot:
    """Return which clients took part when, with the first seed."""
    return Plot(
        name="participation",
        question="Which clients take part when?",
        caption="A column is a client, a row a block of rounds, with the first seed. Dark: it took "
        "no part; the brighter the more, up to three times an equal share.",
        panels=[heat_panel(results, label) for label in results.scenario.policies],
        has_file=False,
    )


def heat_panel(results: Results, label: str) -> Panel:
    """Return which clients took part when under a policy."""
    cohorts = results.records(label)[0]["kept"]
    n_clients, rounds = results.scenario.clients.n_clients, len(cohorts)
    turns = rounds * results.scenario.cohort_size // n_clients
    edges = np.linspace(0, rounds, max(1, min(N_BLOCKS, turns)) + 1).astype(int)
    blocks = np.split(cohorts, edges[1:-1])
    counts = np.array([participation(block, n_clients) / len(block) for block in blocks])
    made = results.simulated_clients(0)
    speed = made.mean_speed(1) if made else np.zeros(n_clients)
    clients = in_order(speed, MAX_CLIENTS)
    heat = Heat(
        names=[made.name(k) if made else str(k) for k in clients],
        y=(edges[1:] + edges[:-1]) / 2,
        value=counts[:, clients] * n_clients / results.scenario.cohort_size,
        label="share",
    )
    x = "clients, slow to fast" if made else "clients"
    return Panel(x=x, y="round", title=label, marks=[heat])


def learned_plot(results: Results, clients: SimulatedClients) -> Plot:
    """Return the speeds that the server observed, against the truth, with the first seed."""
    marks: list[Points | Line] = []
    for label in results.scenario.policies:
        speeds = learned_speeds(results, label, clients)
        shown = in_order(speeds.truth, MAX_CLIENTS)
        names = [f"client {clients.name(k)}, {speeds.count[k]} responses" for k in shown]
        x, y, half = speeds.truth[shown], speeds.mean[shown], speeds.half[shown]
        marks.append(Points(label=label, x=x, y=y, half=half, names=names))
    ends = np.array([0.0, speeds.truth.max()])
    marks.append(Line(label="truth", x=ends, y=ends, is_grey=True))
    return Plot(
        name="learned",
        question="Are the observed speeds the true ones?",
        caption="Speed: the shortest possible latency over that of the client, at most 1. As "
        "observed, with 95 % intervals, against the truth (first seed). Click a policy in the "
        "legend to hide it.",
        panels=[Panel(x="true mean speed", y="observed mean speed", marks=marks)],
        has_file=False,
    )


@dataclass(frozen=True, slots=True)
class LearnedSpeeds:
    """Speeds tau_min / tau as observed in one run: mean and 95 % interval, NaN where unknown."""

    truth: FloatArray
    mean: FloatArray
    half: FloatArray
    count: IntArray


def learned_speeds(results: Results, label: str, fleet: SimulatedClients) -> LearnedSpeeds:
    """Return the speeds that the first run showed; latencies are drawn again: none is stored."""
    records = results.records(label)[0]
    total, squares = np.zeros((2, fleet.n_clients))
    count = participation(records["cohort"], fleet.n_clients)
    started_s = np.append(0.0, records["clock_s"][:-1])  # a round starts when the one before ends
    for record, clock_s in zip(records, started_s.tolist(), strict=True):
        cohort = record["cohort"][record["cohort"] >= 0]
        latency = fleet.latencies(int(record["round"]), clock_s)[cohort]
        speed = fleet.tau_min / np.minimum(latency, fleet.tau_max)
        total[cohort] += speed
        squares[cohort] += speed**2
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        variance = np.maximum(squares / count - mean**2, 0.0) * count / (count - 1)
        half = np.where(count > 1, 1.96 * np.sqrt(variance / count), np.nan)
    return LearnedSpeeds(fleet.mean_speed(int(records["round"][-1])), mean, half, count)


def shown_rounds(last: int) -> IntArray:
    """Return the rounds at which a curve is drawn, dense at the start and even later."""
    spaced = (np.geomspace(1, last, N_POINTS), np.linspace(1, last, N_POINTS))
    return np.unique(np.concatenate(spaced).round().astype(np.int64))


def in_order(value: FloatArray | IntArray, most: int) -> IntArray:
    """Return the clients from the least value to the largest: all, or so many in even steps."""
    places = np.unique(np.linspace(0, len(value) - 1, most).astype(np.int64))
    return np.argsort(value, kind="stable")[places]


def _bands(results: Results) -> str:
    """Return what the bands of curves are, or that there are none."""
    if results.seeds >= BAND_SEEDS:
        return "Bands are 95 % intervals over seeds."
    return f"{seeds_in_words(results.seeds).capitalize()}: too few for bands."


def _title(results: Results) -> str:
    scenario = results.scenario
    seeds = seeds_in_words(results.seeds, ", 95 % bands" * (results.seeds >= BAND_SEEDS))
    return (
        f"{scenario.title} (K = {scenario.clients.n_clients}, m = {scenario.cohort_size}, {seeds})"
    )
