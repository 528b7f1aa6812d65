r"""Why a client was selected in the last round, or not, by the objective that was maximised.

A cohort S is worth E(S) = min_S u + (alpha / m) sum_S g. A client k was not selected because the
best cohort with it, S_k, is worth less. The difference has two parts, speed and value:

    E(S) - E(S_k) = (min_S u - min_{S_k} u) - (alpha / m) (sum_{S_k} g - sum_S g)

For Pace both are seconds: how much longer the round would have lasted, and how much more the other
members are worth. For a client that was selected, S_k is the best cohort without it.
"""

import math
from dataclasses import dataclass, field
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
UNKNOWN = (
    "what was weighed is not known any more, as the scheduler was loaded from a file since, or "
    "clients were forgotten"
)


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
    number, latest, known = engine.task.round, engine.rounds.latest, engine.selection
    selected = latest is not None and bool(np.isin(client, latest.cohort))
    about = f"{named(names[client])} was {'' if selected else 'not '}selected in round {number:,}"
    simple = {"client": names[client], "round": number, "selected": selected}
    if number == 0:
        return Explanation(**simple, text="no round has been opened yet")
    if known is None:
        return Explanation(**simple, text=f"{about}: {UNKNOWN}")
    selection, available = known
    position = _position(selection.candidates, client)
    if position is None:
        why = _not_weighed(selection, available, client, engine, selected=selected)
        return Explanation(**simple, text=f"{about}: {why}")
    before = np.flatnonzero(np.isin(selection.candidates, selection.clients, assume_unique=True))
    other = _best_alternative(selection, before, position, with_it=not selected)
    if other is None:
        return Explanation(**simple, text=f"{about}: all candidates were selected")
    u, g, worth = selection.u, selection.g, selection.alpha / len(before)
    speed, other_speed = float(u[before].min()), float(u[other].min())
    value, other_value = (worth * float(g[at].sum()) for at in (before, other))
    cost = speed - other_speed if speed != other_speed else 0.0  # both may be infinite
    found = Explanation(
        **simple,
        text="",
        unit=selection.unit,
        objective=speed + value,
        alternative=other_speed + other_value,
        difference=cost - (other_value - value),
        cost=cost,
        gain=other_value - value,
        latency_s=-float(u[position]) if selection.unit == "s" else None,
        leaving=tuple(names[k] for k in selection.candidates[np.setdiff1d(before, other)].tolist()),
        entering=tuple(
            names[k] for k in selection.candidates[np.setdiff1d(other, before)].tolist()
        ),
    )
    interval = _interval(engine, client)
    sentence = _sentence(found, selection, float(u[position]), interval)
    if not selection.is_exact and found.difference is not None and found.difference < 0:
        sentence += "; the solver missed the better cohort"
    object.__setattr__(found, "text", f"{about}: {sentence}")
    return found


def _position(clients: IntArray, client: int) -> int | None:
    at = int(np.searchsorted(clients, client))
    return at if at < len(clients) and clients[at] == client else None


def _best_alternative(
    selection: Selection, before: IntArray, position: int, *, with_it: bool
) -> IntArray | None:
    r"""Return the positions of a best cohort with a candidate, or without; None if there is none.

    With k a member the minimum is at most u_k. So cut every u to it: the m - 1 others maximise
    min min(u, u_k) + (alpha / m) sum g, which is the same problem with a place less.
    """
    m, n = len(before), len(selection.candidates)
    others = np.concatenate([before, np.setdiff1d(np.arange(n), before)])  # members first: ties
    others = others[others != position]
    u, g = selection.u[others], selection.g[others]
    if with_it and m == 1:
        return np.array([position])
    if with_it:
        u = np.minimum(u, selection.u[position])
        best = solve_exact(u, g, m - 1, selection.alpha * (m - 1) / m)
        return np.sort(np.append(others[best], position))
    return np.sort(others[solve_exact(u, g, m, selection.alpha)]) if len(others) >= m else None


def _not_weighed(
    selection: Selection, available: IntArray, client: int, engine: Engine, *, selected: bool
) -> str:
    """Return why a client had a place, or none, before anything was weighed."""
    n = len(available)
    if _position(available, client) is None:
        return f"it was not one of the {n:,} available clients"
    if selected and len(selection.clients) == n:
        return f"all {n:,} available clients were selected"
    if selected and _position(selection.reserved, client) is not None:
        return "it had never been selected, and places are reserved for such clients"
    if len(selection.candidates) and not selected:
        return "clients that had never been selected took all places"
    name = type(engine.policy).__name__
    how = "does not report how it weighs them"
    return f"{name} selected {len(selection.clients):,} of {n:,} available clients and {how}"


def _interval(engine: Engine, client: int) -> tuple[float, float] | None:
    pool, _ = engine.views()
    _, low, high = (float(column[0]) for column in pool.latencies(np.array([client])))
    return None if math.isnan(low) else (low, high)


def _sentence(
    found: Explanation, selection: Selection, u: float, interval: tuple[float, float] | None
) -> str:
    """Return the numbers of an explanation in a sentence."""
    assert found.cost is not None
    assert found.gain is not None
    scale = float(np.abs(selection.g).max()) * selection.alpha + abs(found.cost)
    unit = " s" if selection.unit == "s" else ""

    def amount(value: float) -> str:
        return f"{figure(abs(value))}{unit}"

    other = f"the best cohort {'without' if found.selected else 'with'} it"
    clauses = []
    if selection.unit != "value":
        speed = "as fast"
        if abs(found.cost) > NEGLIGIBLE * scale:
            speed = f"{amount(found.cost)} {'slower' if found.cost > 0 else 'faster'}"
        clauses.append(speed)
    value = "worth as much"
    if abs(found.gain) > NEGLIGIBLE * scale:
        value = f"worth {amount(found.gain)} {'more' if found.gain > 0 else 'less'}"
    elif abs(found.cost) <= NEGLIGIBLE * scale:
        value += " (ties are broken at random)"
    clauses.append(value)
    text = f"{other} would be {' and '.join(clauses)}"
    swapped = found.entering if found.selected else found.leaving
    if swapped:
        names = ", ".join(map(named, swapped[:N_NAMED]))
        names += f" and {len(swapped) - N_NAMED:,} more" * (len(swapped) > N_NAMED)
        text += f", with {names} {'in it' if found.selected else 'left out'}"
    if selection.unit == "index":
        text += f"; its speed index is {figure(u)}"
    elif selection.unit == "s":
        width = "a prediction, as it never responded"
        if interval is not None:
            width = f"80 % of its responses come in {' - '.join(map(figure, interval))} s"
        text += f"; its expected latency is {figure(-u)} s ({width})"
    return text
