r"""Why a client was selected in the last round, or not, by the objective that was maximised.

A cohort S is worth E(S) = min_S u + (alpha / m) sum_S g. A client k was not selected because the
best cohort with it, S_k, is worth less. The difference has two parts, speed and value:

    E(S) - E(S_k) = (min_S u - min_{S_k} u) - (alpha / m) (sum_{S_k} g - sum_S g)

For Pace both are seconds: how much longer the round would have lasted, and how much more the other
members are worth. For a client that was selected, S_k is the best cohort without it.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bsfl._core.engine import Engine
from bsfl.monitoring.words import figure, named
from bsfl.policy import Selection, Unit
from bsfl.solvers import solve_exact
from bsfl.types import IntArray

N_NAMED = 3
"""Clients that a text names."""
NEGLIGIBLE = 1e-8
"""Differences below this part of what is weighed are not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a client was selected, or not; `str()` is the text.

    Attributes:
        client: Its id.
        round: The round.
        selected: Whether it was selected.
        text: Why, in a sentence.
        unit: What the numbers below count: "s", "index" (points of a speed index) or "value"; None
            where nothing was weighed, or the policy does not tell. Then they are None, too.
        objective: What the selected cohort is worth.
        alternative: What the best cohort is worth that has the client if it was not selected, and
            does not have it if it was.
        difference: objective - alternative, at least 0 where the solver is exact.
        cost: How much slower the alternative is.
        gain: How much more its members are worth; difference = cost - gain.
        latency_s: The expected latency of the client, where the objective has seconds.
        leaving: Clients that would have left the cohort for the alternative.
        entering: Clients that would have entered it.
    """

    client: Any
    round: int
    selected: bool
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


def explain(engine: Engine, client: int, names: list[Any]) -> Explanation:
    """Return why a client was selected in the last round, or not."""
    number, latest = engine.task.round, engine.rounds.latest
    selected = latest is not None and client in latest.cohort
    simple = Explanation(
        client=names[client],
        round=number,
        selected=selected,
        text=f"{named(names[client])} was {'' if selected else 'not '}selected in round {number:,}",
    )
    if number == 0:
        return replace(simple, text="no round has been opened yet")
    if reason := _reason(engine, client, selected=selected):
        return replace(simple, text=f"{simple.text}: {reason}")
    assert engine.selection
    selection, _ = engine.selection
    u, g, candidates = selection.u, selection.g, selection.candidates
    at = int(np.searchsorted(candidates, client))
    cohort = np.flatnonzero(np.isin(candidates, selection.clients, assume_unique=True))
    other = _best_alternative(selection, cohort, at, with_it=not selected)
    speed, other_speed = (float(u[one].min()) for one in (cohort, other))
    worth = selection.alpha / len(cohort)
    value, other_value = (worth * float(g[one].sum()) for one in (cohort, other))
    cost = speed - other_speed if speed != other_speed else 0.0  # both may be infinite
    found = replace(
        simple,
        unit=selection.unit,
        objective=speed + value,
        alternative=other_speed + other_value,
        difference=cost - (other_value - value),
        cost=cost,
        gain=other_value - value,
        latency_s=-float(u[at]) if selection.unit == "s" else None,
        leaving=tuple(names[k] for k in candidates[np.setdiff1d(cohort, other)].tolist()),
        entering=tuple(names[k] for k in candidates[np.setdiff1d(other, cohort)].tolist()),
    )
    text = f"{simple.text}: {_comparison(found, cost, other_value - value, selection)}"
    if selection.unit == "index":
        text += f"; its speed index is {figure(float(u[at]))}"
    elif selection.unit == "s":
        text += f"; its expected latency is {figure(-float(u[at]))} s ({_interval(engine, client)})"
    if not selection.is_exact and speed + value < other_speed + other_value:
        text += "; the solver missed the better cohort"
    return replace(found, text=text)


def _reason(engine: Engine, client: int, *, selected: bool) -> str | None:
    """Return why a client had a place, or none, where it was not weighed; None: it was."""
    if engine.selection is None:
        return (
            "what was weighed is not known any more, as the scheduler was loaded from a file "
            "since, or clients were forgotten"
        )
    selection, available = engine.selection
    n, m = len(available), len(selection.clients)
    if client not in available:
        return f"it was not one of the {n:,} available clients"
    if client in selection.candidates:
        there_is_a_choice = not np.isin(selection.candidates, selection.clients).all()
        return None if there_is_a_choice else "all candidates were selected"
    if selected and m == n:
        return f"all {n:,} available clients were selected"
    if selected and client in selection.reserved:
        return "it had never been selected, and places are reserved for such clients"
    if len(selection.candidates) and not selected:
        return "clients that had never been selected took all places"
    name = type(engine.policy).__name__
    return (
        f"{name} selected {m:,} of {n:,} available clients and does not report how it weighs them"
    )


def _best_alternative(
    selection: Selection, cohort: IntArray, at: int, *, with_it: bool
) -> IntArray:
    r"""Return the positions of a best cohort with the candidate at a position, or without it.

    With k a member the minimum is at most u_k. So cut every u to it: the m - 1 others maximise
    min min(u, u_k) + (alpha / m) sum g, which is the same problem with a place less.
    """
    m = len(cohort)
    others = np.concatenate([cohort, np.setdiff1d(np.arange(len(selection.u)), cohort)])
    others = others[others != at]  # members of the cohort first: ties
    u, g = selection.u[others], selection.g[others]
    if not with_it:
        return np.sort(others[solve_exact(u, g, m, selection.alpha)])
    if m == 1:
        return np.array([at])
    best = solve_exact(np.minimum(u, selection.u[at]), g, m - 1, selection.alpha * (m - 1) / m)
    return np.sort(np.append(others[best], at))


def _comparison(found: Explanation, cost: float, gain: float, selection: Selection) -> str:
    """Return how much slower the alternative is, what it is worth, and who is in it."""
    negligible = NEGLIGIBLE * (float(np.abs(selection.g).max()) * selection.alpha + abs(cost))

    def amount(value: float, more: str, less: str, same: str) -> str:
        if abs(value) <= negligible:
            return same
        unit = " s" if selection.unit == "s" else ""
        return f"{figure(abs(value))}{unit} {more if value > 0 else less}"

    text = f"the best cohort {'without' if found.selected else 'with'} it would be "
    if selection.unit != "value":
        text += amount(cost, "slower", "faster", "as fast") + " and "
    text += "worth " + amount(gain, "more", "less", "as much")
    if max(abs(cost), abs(gain)) <= negligible:
        text += " (ties are broken at random)"
    if swapped := found.entering if found.selected else found.leaving:
        text += f", with {', '.join(map(named, swapped[:N_NAMED]))}"
        text += f" and {len(swapped) - N_NAMED:,} more" * (len(swapped) > N_NAMED)
        text += " in it" if found.selected else " left out"
    return text


def _interval(engine: Engine, client: int) -> str:
    pool, _ = engine.views()
    _, low, high = (float(column[0]) for column in pool.latencies(np.array([client])))
    if math.isnan(low):
        return "a prediction, as it never responded"
    return f"80 % of its responses come in {figure(low)} - {figure(high)} s"
