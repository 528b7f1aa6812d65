"""The best policies over several scenarios."""

from collections import Counter
from collections.abc import Sequence

from bsfl.experiments.headline import headline, winner
from bsfl.experiments.metrics import METRICS
from bsfl.experiments.summary import Summary
from bsfl.experiments.tables import Cell, Column, Table, metric_column


def overall(summaries: Sequence[Summary]) -> list[str]:
    """Return in how many scenarios policies are first, and in how many tied with the first."""
    if len(summaries) == 1:
        return [f"{summaries[0].scenario.name}: {headline(summaries[0])[0]}"]
    winners = [best for summary in summaries if (best := winner(summary))]
    if not winners:
        return ["No policy reached the target with every seed; run longer."]
    firsts = Counter(best.label for best in winners)
    tied = Counter(label for best in winners for label in (best.label, *best.tied))
    most = max((firsts[label], tied[label]) for label in firsts)
    leaders = [label for label in firsts if (firsts[label], tied[label]) == most]
    n_clear = sum(best.label in leaders and not best.tied for best in winners)
    are, each = ("is", "") if len(leaders) == 1 else ("are", " each")
    counts = ", ".join(f"{label} in {n}" for label, n in tied.most_common())
    return [
        f"{' and '.join(leaders)} {are} first in {most[0]} of {len(summaries)} scenarios{each}, "
        f"with a significant lead over all others in {n_clear or 'none'} of them.",
        f"First, or tied with the first: {counts}.",
    ]


def winners_table(summaries: Sequence[Summary]) -> Table:
    """Return one row per scenario: the policy first to the target, when, and those tied with it."""
    rows: list[list[Cell]] = []
    for summary in summaries:
        first = winner(summary)
        if first is None:
            rows.append([summary.scenario.name, "none", None, None, None])
            continue
        rows.append(
            [
                summary.scenario.name,
                first.label,
                summary.interval(first.label, "time_to_target_s"),
                summary.interval(first.label, "target_speed_up"),
                ", ".join(first.tied) or "none",
            ]
        )
    times = [metric_column(METRICS[key]) for key in ("time_to_target_s", "target_speed_up")]
    return Table(
        title="The first policy to reach the target, by scenario",
        columns=[Column("scenario"), Column("policy"), *times, Column("tied")],
        rows=rows,
        note="Tied: the 95 % interval of the ratio of times, seed by seed, includes 1, or there is "
        "one seed and no interval.",
    )
