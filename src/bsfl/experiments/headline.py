"""Results in a few sentences: the best policy, by how much, and whether that is significant."""

from dataclasses import dataclass

import numpy as np

from bsfl.experiments.statistics import interval
from bsfl.experiments.summary import Summary
from bsfl.types import FloatArray

SPEED_UPS = {"time_to_target_s": "target_speed_up", "mean_round_s": "round_speed_up"}
"""The speed-up over the baseline, by the metric that decides."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The label of the best policy, and of those that do not differ from it significantly."""

    label: str
    tied: tuple[str, ...]


def winner(summary: Summary) -> Winner | None:
    """Return the best policy; None: no policy reached the target with every seed.

    It has the shortest time to the target or, where nothing is trained, the shortest mean round.
    Oracles do not compete, unless there are no other policies. Two policies differ significantly if
    the 95 % interval of their ratio, seed by seed, excludes 1; one seed cannot show that. A policy
    without the target took at least as long as it ran.
    """
    ranked, key = summary.ranked(), summary.ranking[0]
    first, *others = [k for k in ranked if k not in summary.oracles] or ranked
    if summary.interval(first, key) is None:
        return None
    own = summary.policies[first][key]
    ratios = {label: interval(_at_least(summary, label, key) / own) for label in others}
    return Winner(first, tuple(label for label, ratio in ratios.items() if not ratio.low > 1.0))


def _at_least(summary: Summary, label: str, key: str) -> FloatArray:
    """Return a metric for every seed; where no target was reached, the time simulated."""
    own, time_s = summary.policies[label], summary.scenario.time_s
    if np.isfinite(own[key]).all():
        return own[key]
    simulated_s = time_s if np.isfinite(time_s) else own["total_time_s"]
    return np.where(np.isfinite(own[key]), own[key], simulated_s)


def headline(summary: Summary) -> list[str]:
    """Return the best policy, by how much, whether that is significant, and what it costs.

    Every item is one sentence; the first can stand alone.
    """
    best = winner(summary)
    if best is None:
        return [
            f"No policy reached {summary.target} with every seed; run longer, or set a lower "
            "target_accuracy."
        ]
    sentences = (
        _result(summary, best),
        _significance(summary, best),
        _fairness(summary, best),
        _least_regret(summary),
    )
    return [sentence for sentence in sentences if sentence]


def _result(summary: Summary, best: Winner) -> str:
    label, base, key = best.label, summary.baseline, summary.ranking[0]
    time_s, round_s = summary.text(label, key), summary.text(label, "mean_round_s")
    result = (
        f"reached {summary.target} in {time_s} s" if summary.target else "has the shortest rounds"
    )
    if base is None or base == label:
        return f"{label} {result}; its mean round takes {round_s} s."
    if speed_up := summary.interval(label, SPEED_UPS[key]):
        result += f", {speed_up.text('.2f')} times as fast as {base}"
        result += " (not significant)" * (base in best.tied and summary.seeds > 1)
    base_s = summary.text(base, "mean_round_s")
    return f"{label} {result}; its mean round takes {round_s} s, that of {base} {base_s} s."


def _significance(summary: Summary, best: Winner) -> str:
    if len(summary.policies) - len(summary.oracles) < 2:
        return ""
    if summary.seeds == 1:
        return "One seed cannot show whether its lead is significant."
    if best.tied:
        return f"Tied with it: {', '.join(best.tied)}."
    return "Its lead over all others is significant."


def _fairness(summary: Summary, best: Winner) -> str:
    """Return how evenly clients participate, compared with the baseline."""
    base = summary.baseline
    ginis = [summary.interval(k, "gini") for k in (best.label, base) if k]
    if base in (None, best.label) or None in ginis:
        return ""
    own, other = (summary.text(str(k), "gini") for k in (best.label, base))
    return f"The Gini coefficient of its participations is {own}, that of {base} {other}."


def _least_regret(summary: Summary) -> str:
    """Return the policy with the least regret, where it is measured and several compete."""
    measured = [
        k for k in summary.policies if k not in summary.oracles and summary.interval(k, "regret")
    ]
    if len(measured) < 2:
        return ""
    least = min(measured, key=lambda label: summary.mean(label, "regret"))
    return f"{least} has the lowest regret, {summary.text(least, 'regret')}."
