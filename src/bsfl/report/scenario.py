"""The report of one scenario: a table, and figures that answer the next questions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bsfl._core.registry import nearest
from bsfl.errors import InvalidInput
from bsfl.estimators.fairness import lorenz, participation
from bsfl.experiments.headline import headline
from bsfl.experiments.learning_spec import Learning
from bsfl.experiments.metrics import (
    METRICS,
    Target,
    evaluated,
    find_target,
    participations,
    time_to,
)
from bsfl.experiments.results import Results, read_manifest
from bsfl.experiments.statistics import Interval, seeds_in_words
from bsfl.experiments.summary import Summary, bound, summarise
from bsfl.experiments.tables import summary_table
from bsfl.learning.partition import Partition
from bsfl.policies import POLICIES
from bsfl.report.plots import (
    BAND_SEEDS,
    OURS,
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

Labels = Sequence[str] | None
"""Policies to show, in the order of the legend; None: all."""
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


def policies_in_front(results: Results) -> tuple[str, ...]:
    """Return the user's own policies, which are drawn in front, or else those of this library."""
    policies = results.scenario.policies
    own = tuple(label for label, one in policies.items() if one.name not in POLICIES)
    return own or OURS


def learning_plot(results: Results, labels: Labels = None) -> Plot:
    """Return test accuracy, where there is one, and test loss against virtual time."""
    target, labels = find_target(results), shown_labels(results, labels)
    has_accuracy = target.column == "test_accuracy"
    axes: dict[str, Any] = {"x": "virtual time (s)", "log": "" if has_accuracy else "y"}
    panels = []
    for column in ("test_accuracy", "test_loss") if has_accuracy else ("test_loss",):
        curves = [curve(k, *learning_curves(results, k, column)) for k in labels]
        marks: list[Mark] = list(curves)
        is_target = column == target.column
        if is_target:
            marks.append(Rule(at=target.value, label=f"target {target}"))
            marks += reached_marks(results, labels, target)
        limits = None if axes["log"] else settled(curves, [target.value] * is_target)
        panels.append(Panel(y=column.replace("_", " "), marks=marks, y_range=limits, **axes))
    return Plot(
        name="learning",
        question="Which policy learns fastest?",
        caption=f"Quality of the model over virtual time. {_bands(results)} Curves are not "
        "smoothed; the first tenth of the time may be outside of the axes. A policy's mark on the "
        "target line is the median over seeds of the time at which the target was first reached; "
        "the table has the mean.",
        panels=panels,
        title=_title(results),
        front=policies_in_front(results),
        order=labels,
    )


def reached_marks(results: Results, labels: Sequence[str], target: Target) -> list[Mark]:
    """Return a mark on the target line for every policy that reached it with most of the seeds."""
    marks: list[Mark] = []
    for label in labels:
        time_s = float(np.median(time_to(results, label, target)))
        if np.isfinite(time_s):
            x, y = np.array([time_s]), np.array([target.value])
            marks.append(Points(label="", like=label, x=x, y=y))
    return marks


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


def time_plot(results: Results, labels: Labels = None) -> Plot:
    """Return virtual time against rounds, and the distribution of participation."""
    labels = shown_labels(results, labels)
    even = np.array([0.0, 100.0])
    clocks, spread = [], [Line(label="all equal", x=even, y=even, is_grey=True)]
    for label in labels:
        clock = results.column(label, "clock_s")
        rounds = shown_rounds(clock.shape[1])
        clocks.append(curve(label, rounds, clock[:, rounds - 1]))
        share = 100 * lorenz(participations(results, label).mean(axis=0))
        spread.append(Line(label=label, x=np.linspace(0, 100, len(share)), y=share))
    limits = (
        0.0,
        (1 + 2 * MARGIN) * max(float(one.y.max()) for one in clocks),
    )  # no time is negative
    x, y = "clients, fewest participations first (%)", "share of all participations (%)"
    return Plot(
        name="time",
        question="How long do rounds take, and which clients take part?",
        caption="Time: the flatter, the shorter the rounds. Participation: the nearer to the "
        "straight line, the more evenly clients took part; a participation is a response that "
        f"entered the model. {_bands(results)}",
        panels=[
            Panel(
                x="round", y="virtual time (s)", title="Time spent", marks=clocks, y_range=limits
            ),
            Panel(x=x, y=y, title="Participation (Lorenz curve)", marks=spread),
        ],
        title=_title(results),
        front=policies_in_front(results),
        order=labels,
    )


def regret_plot(results: Results, labels: Labels = None) -> Plot:
    """Return cumulative regret against rounds, on plain and on logarithmic axes."""
    labels = shown_labels(results, labels)
    rounds = shown_rounds(results.scenario.rounds)
    late = rounds[rounds >= min(FIRST_LOGARITHMIC_ROUND, results.scenario.rounds)]
    curves = {k: results.cumulative(k, "regret") for k in labels}
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
        front=policies_in_front(results),
        order=labels,
    )


def metric_plot(results: Results, summary: Summary, name: str, labels: Labels = None) -> Plot:
    """Return one metric: a bar for every policy, with its 95 % interval over seeds."""
    labels, metric = shown_labels(results, labels), METRICS[name]
    bars = []
    for label in labels:
        one = summary.interval(label, name) or Interval(np.nan, np.nan, np.nan)
        half = np.nan_to_num(np.array([one.high - one.mean]))
        bars.append(
            Bars(label=label, names=[""], height=np.array([one.mean]), half=half, is_stacked=False)
        )
    return Plot(
        name=name,
        caption=f"{metric.about}; means with 95 % intervals over seeds.",
        panels=[Panel(y=name, marks=bars, starts_at_0="y")],
        title=_title(results),
        front=policies_in_front(results),
        order=labels,
    )


CURVES = {
    "accuracy": (learning_plot, "test accuracy"),
    "loss": (learning_plot, "test loss"),
    "time": (time_plot, "virtual time (s)"),
    "participation": (time_plot, "share of all participations (%)"),
    "regret": (regret_plot, "cumulative regret (reward units)"),
}
"""Curves by name: the plot that has them, and the y axis of the panel."""


def comparison_plot(
    results: Results, summary: Summary, metric: str | None, labels: Labels = None
) -> Plot:
    """Return the main plot, or the one panel of a curve or a metric."""
    if metric is None:
        return (learning_plot if summary.target else time_plot)(results, labels)
    if metric in CURVES:
        make, y = CURVES[metric]
        if make is learning_plot and not summary.target:
            raise InvalidInput(f"there is no {metric} without [learning]")
        if make is regret_plot and not results.scenario.objective:
            raise InvalidInput("there is no regret without [objective]")
        plot = make(results, labels)
        panels = [panel for panel in plot.panels if panel.y == y][:1]
        if not panels:
            raise InvalidInput(f"the task has no {metric}")
        return replace(plot, panels=panels)
    known = {name for own in summary.policies.values() for name in own}
    if metric not in known:
        raise InvalidInput(f"unknown metric {metric!r}{nearest(metric, [*CURVES, *known])}")
    return metric_plot(results, summary, metric, labels)


def shown_labels(results: Results, labels: Labels) -> list[str]:
    """Return the labels to show; None: all."""
    known = list(results.scenario.policies)
    for label in labels or ():
        if label not in known:
            raise InvalidInput(f"no policy is called {label!r}{nearest(label, known)}")
    return known if labels is None else list(labels)


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
    """Return what curves and their bands are."""
    if results.seeds == 1:
        return "One seed."
    if results.seeds >= BAND_SEEDS:
        return "Curves are medians over seeds, bands reach from quartile to quartile."
    return f"Curves are medians over {results.seeds} seeds, too few for bands."


def _title(results: Results) -> str:
    scenario = results.scenario
    bands = ", medians and quartiles" * (results.seeds >= BAND_SEEDS)
    size = f"K = {scenario.clients.n_clients:,}, m = {scenario.cohort_size:,}"
    return f"{scenario.title} ({size}, {seeds_in_words(results.seeds, bands)})"
