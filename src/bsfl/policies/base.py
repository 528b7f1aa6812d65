"""What a policy is, and what most of them share: a top m, a weighted draw, a part of a number."""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bsfl.checks import short
from bsfl.errors import InvalidInput
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.solvers.choice import Choice
from bsfl.state import State


@runtime_checkable
class Policy(Protocol):
    """A selection rule: a frozen record of settings. What it learns is in a separate state.

    Beside these methods a class may say of itself, as attributes or properties:

        needs           what clients must tell: LOSS, SAMPLES or both, see bsfl.requirements
        knows_truth     True for a reference that is told what no server can know
        chooses_fewer   True if a cohort may be smaller than wanted, though more are available
        REMEMBERS_BY    names of the settings without which a saved state means something else
        tuning          settings to try beside the defaults, when policies are tuned
        example         settings for a small fleet, for the contract suite and the docs
        weights         method (state, context, clients) -> what each one's update weighs in the
                        model, where the rule has weights of its own; without a barrier every
                        question is a round, and the mean over a buffer of them is applied
        choice          method (state, context, rng) -> Choice: the cohort of `select` with all that
                        it was weighed by, so that it can be explained. Kept until the next round,
                        so its arrays must be nobody else's
        figures         method (state, context) -> numbers by name that the policy has found, such
                        as a weight; shown in summaries, journals and metrics
    """

    def init(self, n_clients: int) -> State:
        """Return the state before the first round."""

    def select(self, state: State, context: RoundContext, rng: Rng) -> IntArray:
        """Return the cohort, sorted. Pure: the state is never changed."""

    def observe(self, state: State, context: RoundContext, report: Report) -> None:
        """Learn from a report. The only place where the state changes; costs O(cohort)."""


def check_policy_object(policy: object) -> None:
    """Check that something has the methods of a policy; a class or a name is not one yet."""
    if isinstance(policy, type):
        raise InvalidInput(
            f"policy must be an object, got the class {policy.__name__}; "
            f"did you mean {policy.__name__}()?"
        )
    if isinstance(policy, str):
        raise InvalidInput(
            f"policy must be an object such as Pace(), got {short(policy)}; "
            "bsfl.policies.make_policy makes one by its name"
        )
    missing = [name for name in ("init", "select", "observe") if not hasattr(policy, name)]
    if missing:
        raise InvalidInput(
            f"policy must have init, select and observe; {short(policy)} has no "
            f"{' and no '.join(missing)}"
        )


def chosen_by(policy: Policy, state: State, context: RoundContext, rng: Rng) -> Choice:
    """Return a policy's checked cohort and, where it says so, what it was weighed by.

    Whoever derives a policy and writes another `select` is asked for that one.
    """
    for kind in type(policy).__mro__:
        if "choice" in vars(kind):
            made: Choice = policy.choice(state, context, rng)  # type: ignore[attr-defined]
            return replace(made, cohort=checked_cohort(policy, context, made.cohort))
        if "select" in vars(kind):
            break
    cohort = checked_cohort(policy, context, policy.select(state, context, rng))
    return Choice(cohort=cohort, available=context.available)


def figures_of(policy: Policy, state: State, context: RoundContext) -> dict[str, float]:
    """Return what a policy has found, as numbers by name; nothing if it does not say."""
    figures = getattr(policy, "figures", None)
    return {} if figures is None else figures(state, context)


def checked_cohort(policy: Policy, context: RoundContext, cohort: Any) -> IntArray:
    """Return a policy's choice, sorted, after checking that it is one."""
    chosen = np.sort(np.asarray(cohort, dtype=np.int64), axis=None)
    most = min(context.cohort_size, len(context.available))
    least = min(1, most) if getattr(policy, "chooses_fewer", False) else most
    first, after = (context.available.searchsorted(chosen, side) for side in ("left", "right"))
    is_away, is_twice = first == after, chosen[1:] == chosen[:-1]
    if is_twice.any() or not least <= len(chosen) <= most or is_away.any():
        n_wanted = most if least == most else f"{least} to {most}"
        away = np.unique(chosen[is_away]).tolist()
        raise InvalidInput(
            f"the policy must choose {n_wanted} distinct available clients, got {cohort!r}"
            + (f", of whom {short(away)} are not available" if away else "")
        )
    return chosen


def check_places(policy: object) -> None:
    """Check that a policy was told nothing by dense index, so that clients can be forgotten."""
    settings = fields(policy) if is_dataclass(policy) and not isinstance(policy, type) else ()
    told = [one.name for one in settings if isinstance(getattr(policy, one.name), np.ndarray)]
    if told:
        raise InvalidInput(
            f"{type(policy).__name__} knows clients by their place ({', '.join(told)}), so none "
            "can be forgotten"
        )


def weigher(
    policy: Policy, state: State, context: RoundContext
) -> Callable[[IntArray], FloatArray] | None:
    """Return the function that weighs clients as a policy wants it; None if it does not say."""
    weights = getattr(policy, "weights", None)
    return None if weights is None else partial(weights, state, context)


def part_of(n: int, share: float) -> int:
    """Return floor(n share), not one less where rounding errors took a whole number down.

    >>> part_of(10, 1.0 - 0.9), part_of(25, 0.9)
    (1, 22)
    """
    return math.floor(n * share + 1e-9)


def top_m(score: FloatArray, m: int, rng: Rng) -> IntArray:
    """Return the positions of the m largest scores, ties broken at random, sorted.

    >>> top_m(np.array([0.3, np.inf, 0.1, 0.9]), 2, np.random.default_rng(0))
    array([1, 3])
    """
    if m >= len(score):
        return np.arange(len(score))
    if m == 0:
        return np.arange(0)
    cut = np.partition(score, -m)[-m]
    above = np.flatnonzero(score > cut)
    tied = np.flatnonzero(score == cut)
    lucky = rng.choice(tied, m - len(above), replace=False, shuffle=False)
    return np.sort(np.concatenate([above, lucky]))


def weighted_draw(log_weight: FloatArray, m: int, rng: Rng) -> IntArray:
    r"""Return m positions drawn one after another with weights exp(log_weight), none twice, sorted.

    The m largest of log w_k + G_k with independent standard Gumbel G_k are such a draw (Yellott
    1977), whatever the scale of the weights. A weight of 0 (log -inf) is drawn last.

    >>> weighted_draw(np.array([-np.inf, 0.0, 5000.0]), 2, np.random.default_rng(0))
    array([1, 2])
    """
    return top_m(log_weight + rng.gumbel(size=len(log_weight)), m, rng)
