r"""Why a client was chosen in the last round, or not, by the objective that was maximised.

A cohort S is worth E(S) = min_S u + (alpha / m) sum_S g. A client k was not chosen because the best
cohort with it, S_k, is worth less. The difference has two parts, the pace and the value:

    E(S) - E(S_k) = (min_S u - min_{S_k} u) - (alpha / m) (sum_{S_k} g - sum_S g)

For Pace both are seconds: what the round would have lasted longer, and what the other members are
worth more. For one that was chosen S_k is the best cohort without it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bsfl.monitor.words import figure, named
from bsfl.records import IntArray
from bsfl.solvers.choice import Choice, Unit, best_with, best_without, is_in

NAMED = 3
"""Clients that a text names."""
NONE_YET = "no cohort was chosen yet"
GONE = (
    "what was weighed is not known any more, as the scheduler was loaded from a file since, or "
    "clients were forgotten"
)
NOTHING = 1e-8
"""Differences below this part of what is weighed are not told."""

WORDS: dict[str, dict[str, Any]] = {
    "s": {
        "does": "costs the round {}".format,
        "does not": "makes the round no longer",
        "would": "would have cost the round {}".format,
        "would not": "would have made the round no longer",
        "faster": "is {} shorter".format,
        "slower": "is {} longer".format,
    },
    "index": {
        "does": "lowers that of the cohort by {}".format,
        "does not": "does not lower that of the cohort",
        "would": "would have lowered that of the cohort by {}".format,
        "would not": "would not have lowered that of the cohort",
        "faster": "has a speed index higher by {}".format,
        "slower": "has a speed index lower by {}".format,
    },
}
"""What a client does to the pace of a cohort, by what the pace is counted in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a client was chosen, or not; `str()` is the text.

    Attributes:
        client: Its id.
        t: The round.
        chosen: Whether it was.
        text: Why, in a sentence or two.
        unit: What the numbers below count: "s", "index" (points of an index of speed) or "value";
            None where nothing was weighed, or the policy does not say. Then they are None, too.
        objective: What the chosen cohort is worth.
        alternative: What the best cohort is worth that has the client if it was not chosen, and
            does not have it if it was.
        difference: objective - alternative, at least 0 where the solver is exact.
        cost: Of which: what the pace of the alternative is worse.
        gain: Less: what its members are worth more; difference = cost - gain.
        latency_s: How long the client was expected to take, where the objective has seconds.
        leaving: Who would have left the cohort for the alternative.
        entering: Who would have come in.
    """

    client: Any
    t: int
    chosen: bool
    text: str = field(repr=False)
    unit: Unit | None = None
    objective: float | None = None
    alternative: float | None = None
    difference: float | None = None
    cost: float | None = None
    gain: float | None = None
    latency_s: float | None = None
    leaving: tuple[Any, ...] = ()
    entering: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return self.text


def explain(
    choice: Choice | None,
    index: int,
    *,
    t: int,
    cohort: IntArray,
    ids: list[Any],
    policy: str,
    interval_s: tuple[float, float] | None = None,
) -> Explanation:
    """Return why a client was chosen in the last round, or not.

    Args:
        choice: The last cohort, and what it was weighed by; None: it is not known any more.
        index: The client.
        t: The round; 0: there was none.
        cohort: Who was chosen in it.
        ids: The caller's ids.
        policy: What to call the policy.
        interval_s: Between what times 8 of 10 answers of the client come; None: it gave none.
    """
    client = ids[index]
    chosen = is_in(index, cohort)
    about = f"{named(client)} was {'' if chosen else 'not '}chosen in round {t:,}"
    if t == 0 or choice is None:
        return Explanation(
            client=client, t=t, chosen=chosen, text=f"{about}: {GONE}" if t else NONE_YET
        )
    position = choice.place(index)
    if position is None:
        why = _unweighed(choice, index, chosen=chosen, policy=policy)
        return Explanation(client=client, t=t, chosen=chosen, text=f"{about}: {why}")
    before = choice.weighed()
    other = best_without(choice, position) if chosen else best_with(choice, position)
    if other is None:
        why = "all who were to be weighed were taken"
        return Explanation(client=client, t=t, chosen=chosen, text=f"{about}: {why}")
    pace, other_pace = float(choice.u[before].min()), float(choice.u[other].min())
    worth = choice.alpha / len(before)
    value, other_value = (worth * float(choice.g[one].sum()) for one in (before, other))
    cost = pace - other_pace if pace != other_pace else 0.0  # both may be infinite
    gain = other_value - value
    swap = _Swap(
        choice=choice,
        position=position,
        cost=cost,
        gain=gain,
        leaving=choice.clients[np.setdiff1d(before, other)],
        entering=choice.clients[np.setdiff1d(other, before)],
        interval_s=interval_s,
    )
    why = swap.why_chosen(ids) if chosen else swap.why_not(ids)
    if cost < gain and not choice.is_exact:
        why += "; the solver missed the better cohort"
    return Explanation(
        client=client,
        t=t,
        chosen=chosen,
        text=f"{about}: {why}",
        unit=choice.unit,
        objective=pace + value,
        alternative=other_pace + other_value,
        difference=cost - gain,
        cost=cost,
        gain=gain,
        latency_s=-float(choice.u[position]) if choice.unit == "s" else None,
        leaving=tuple(ids[k] for k in swap.leaving.tolist()),
        entering=tuple(ids[k] for k in swap.entering.tolist()),
    )


def _unweighed(choice: Choice, index: int, *, chosen: bool, policy: str) -> str:
    """Return why a client had a place, or none, before anything was weighed."""
    n = len(choice.available)
    if not is_in(index, choice.available):
        return f"it was not one of the {n:,} that were available"
    if chosen and len(choice.cohort) == n:
        return f"all {n:,} that were available were taken"
    if chosen and is_in(index, choice.first):
        return "it had never been chosen, and places were kept for such clients"
    if len(choice.clients) and not chosen:
        return "clients that had never been chosen came first, and took all places"
    how = "does not tell how it weighs them"
    return f"{policy} chose {len(choice.cohort):,} of {n:,} available clients and {how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Swap:
    """The chosen cohort against the best other one, put into words.

    Attributes:
        choice: What was weighed.
        position: The client, among those who were.
        cost, gain: See Explanation.
        leaving, entering: Who would have left, and come in; dense indices.
        interval_s: Between what times most answers of the client come.
    """

    choice: Choice
    position: int
    cost: float
    gain: float
    leaving: IntArray
    entering: IntArray
    interval_s: tuple[float, float] | None

    def why_not(self, ids: list[Any]) -> str:
        """Return why a client was not chosen."""
        value = self._value(ids, self.leaving, self.gain)
        if self.choice.unit == "value":
            return f"only value counted, and {value}"
        words = WORDS[self.choice.unit]
        if self._none(self.cost):
            return f"{self._pace()} {words['would not']}, but {value}"
        if self.cost < 0:
            return (
                f"the best cohort with it {words['faster'](self._amount(self.cost))}, but {value}"
            )
        value = value.replace("worth", "worth only", 1) if self.gain > 0 else value
        return f"{self._pace()} {words['would'](self._amount(self.cost))}, and {value}"

    def why_chosen(self, ids: list[Any]) -> str:
        """Return why a client was chosen."""
        value = self._value(ids, self.entering, -self.gain)
        if self.choice.unit == "value":
            return f"only value counted, and {value}"
        words = WORDS[self.choice.unit]
        if self._none(self.cost):
            return f"{self._pace()} {words['does not']}, and {value}"
        if self.cost < 0:
            return f"{self._pace()} {words['does'](self._amount(self.cost))}, but {value}"
        joint = "though" if self.gain > 0 else "and"
        slower = words["slower"](self._amount(self.cost))
        return f"the best cohort without it {slower}, {joint} {value}"

    def _pace(self) -> str:
        """Return what was believed of the client's speed."""
        u = float(self.choice.u[self.position])
        if self.choice.unit == "index":
            return f"its speed index of {figure(u)}"
        wide = "a guess: it never answered"
        if self.interval_s is not None:
            wide = f"8 of 10 answers come in {' - '.join(map(figure, self.interval_s))} s"
        return f"its latency, taken for {figure(-u)} s ({wide}),"

    def _value(self, ids: list[Any], others: IntArray, more: float) -> str:
        """Return what the client, and who comes or goes with it, brings more than others."""
        who = ", ".join(named(ids[k]) for k in others[:NAMED].tolist())
        who += f" and {len(others) - NAMED:,} more" * (len(others) > NAMED)
        company = len(self._company())
        subject = f"it and {company:,} with it are worth" if company else "it is worth"
        if self._none(more):
            lot = "; equals are drawn by lot" if self._none(self.cost) else ""
            return f"{subject} as much as {who}{lot}"
        return f"{subject} {self._amount(more)} {'more' if more > 0 else 'less'} than {who}"

    def _company(self) -> IntArray:
        """Return who would come, or go, together with the client."""
        own = int(self.choice.clients[self.position])
        mine = self.entering if own in self.entering else self.leaving
        return np.setdiff1d(mine, [own])

    def _amount(self, value: float) -> str:
        return f"{figure(abs(value))} s" if self.choice.unit == "s" else figure(abs(value))

    def _none(self, value: float) -> bool:
        """Return whether a number is too small to be told, such as what decides between equals."""
        largest = float(np.abs(self.choice.g).max()) * self.choice.alpha + abs(self.cost)
        return abs(value) <= NOTHING * largest
