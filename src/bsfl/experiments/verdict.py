"""Results in a few sentences: the best policy, by how much, and whether that is significant."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from bsfl.experiments.metrics import BASELINES, METRICS
from bsfl.experiments.statistics import interval
from bsfl.experiments.summary import Summary
from bsfl.types import FloatArray

ONE_SEED_RATIO = 1.28
"""Ratio that two equal policies may show with one seed: their times to the target differ by about a
tenth from seed to seed (see the leaderboard), and 1 + 1.96 sqrt(2) / 10 = 1.28."""

ALIKE = 0.02
"""Gini coefficients that differ by less are called alike."""
SPEED_UPS = {"time_to_target_s": "target_speed_up", "mean_round_s": "speed_up"}
"""Which metric says how many times as fast as the baseline, by what decides."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The best policy by a metric.

    Attributes:
        label: The policy.
        key: The metric.
        tied: Policies that do not differ from it significantly.
        n_others: With how many policies it competed.
    """

    label: str
    key: str
    tied: tuple[str, ...]
    n_others: int


def winner(summary: Summary) -> Winner | None:
    """Return the best policy; None: no policy reached the target with every seed.

    It has the shortest time to the target or, where nothing is trained, the shortest mean round.
    Oracles do not compete, unless there are no other policies. Two policies differ significantly if
    the 95 % interval of their ratio, seed by seed, excludes 1; with one seed, if they differ by
    more than ONE_SEED_RATIO. A policy without the target took at least as long as it ran.
    """
    ranked, key = summary.ranked(), summary.ranking[0]
    first, *others = [k for k in ranked if k not in summary.oracles] or ranked
    if summary.interval(first, key) is None:
        return None
    own = summary.policies[first][key]
    tied = []
    for label in others:
        found = interval(_at_least(summary, label, key) / own)
        if found.mean < ONE_SEED_RATIO if summary.seeds == 1 else found.low <= 1.0:
            tied.append(label)
    return Winner(first, key, tuple(tied), len(others))


def _at_least(summary: Summary, label: str, key: str) -> FloatArray:
    """Return a metric for every seed; where no target was reached, the time simulated."""
    own, time_s = summary.policies[label], summary.scenario.time_s
    if np.isfinite(own[key]).all():
        return own[key]
    played_s = time_s if np.isfinite(time_s) else own["total_time_s"]
    return np.where(np.isfinite(own[key]), own[key], played_s)


def verdict(summary: Summary) -> list[str]:
    """Return the best policy, by how much, whether that is significant, and what it cost."""
    found = winner(summary)
    if found is None:
        return [f"Too short to decide: no policy reached {summary.target} with every seed."]
    label, key = found.label, found.key
    base = baseline(summary)
    others = [] if base in (None, label) else [str(base)]

    def numbers(key: str, unit: str = "", per: str = "") -> str:
        """Return a number of the best, and beside it that of the baseline."""
        own, *rest = (f"{summary.text(k, key, wide=False)}{unit}" for k in (label, *others))
        return f"{own}{per}" + "".join(f", {base} {one}" for one in rest)

    faster = summary.interval(label, SPEED_UPS[key]) if others else None
    times = f", {faster.text('.2f')} times as fast as {base}" if faster else ""
    doubt = ", which is not significant" if faster and base in found.tied else ""
    if key == "mean_round_s":
        first = f"{label} has the shortest rounds: {numbers(key, ' s')}"
        if faster:
            own, theirs = (summary.text(k, key, wide=False) for k in (label, *others))
            first = f"{label} has the shortest rounds: {own} s{times} ({theirs} s){doubt}"
    else:
        after = summary.text(label, key, wide=False)
        waited = numbers("mean_round_s", " s", " a round")
        first = (
            f"{label} reached {summary.target} after {after} s{times}{doubt}; it waited {waited}"
        )
    more = filter(None, (_certainty(summary, found), _price(summary, found), _regret(summary)))
    return [one for one in (f"{first}.", " ".join(more)) if one]


def baseline(summary: Summary) -> str | None:
    """Return the label of the policy that others are compared with, if it takes part."""
    named = {one.name: label for label, one in summary.scenario.policies.items()}
    return next((named[policy] for policy in BASELINES if policy in named), None)


def _certainty(summary: Summary, found: Winner) -> str:
    if not found.n_others:
        return ""
    if found.tied:
        return f"Tied with it: {', '.join(found.tied)}."
    if summary.seeds > 1:
        return "Its lead over all others is significant."
    if found.key == "mean_round_s":
        return "One seed cannot show whether that is significant; more seeds can."
    chance = f"{100 * (ONE_SEED_RATIO - 1):.0f} %"
    return f"Its lead over all others is larger than chance may bring with one seed, {chance}."


def _price(summary: Summary, found: Winner) -> str:
    """Return what the best policy does to fairness."""
    base = baseline(summary)
    if base in (None, found.label):
        return ""
    own, theirs = (summary.mean(label, "gini") for label in (found.label, str(base)))
    if not np.isfinite([own, theirs]).all():
        return ""
    form = METRICS["gini"].form
    words = "less evenly than" if own > theirs else "more evenly than"
    words = "about as evenly as" if abs(own - theirs) < ALIKE else words
    return f"Clients take part {words} with {base}: Gini {own:{form}} against {theirs:{form}}."


def _regret(summary: Summary) -> str:
    """Return the policy with the least regret, where it is measured and several compete."""
    known = [
        k for k in summary.policies if k not in summary.oracles and summary.interval(k, "regret")
    ]
    if len(known) < 2:
        return ""
    least = min(known, key=lambda label: summary.mean(label, "regret"))
    return f"{least} has the least regret, {summary.text(least, 'regret', wide=False)}."


def overall(summaries: list[Summary]) -> list[str]:
    """Return in how many scenarios policies are first, and in how many tied with the first."""
    if len(summaries) == 1:
        return [f"{summaries[0].scenario.name}: {verdict(summaries[0])[0]}"]
    winners = [found for one in summaries if (found := winner(one))]
    if not winners:
        return ["Too short to decide: no policy reached the target with every seed of a scenario."]
    tied = Counter(label for found in winners for label in (found.label, *found.tied))
    firsts = Counter(found.label for found in winners)
    most, _ = top = max((firsts[label], tied[label]) for label in firsts)
    best = [label for label in firsts if (firsts[label], tied[label]) == top]
    n_clear = sum(found.label in best and not found.tied for found in winners)
    where = f"in {n_clear} of them" if n_clear else "in none of them"
    are, each = ("is", "") if len(best) == 1 else ("are", " each")
    counts = ", ".join(f"{label} in {n}" for label, n in tied.most_common())
    return [
        f"{' and '.join(best)} {are} first in {most} of {len(summaries)} scenarios{each}, {where} "
        "with a significant lead over all others.",
        f"First, or tied with the first: {counts}.",
    ]
