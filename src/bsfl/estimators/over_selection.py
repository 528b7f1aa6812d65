"""How many clients to invite, so that enough of them respond."""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from bsfl.policy import Selection
from bsfl.types import MIN_OVER_SELECTION, FloatArray, IntArray, RoundContext, max_invited, pick

Z_95 = NormalDist().inv_cdf(0.95)
"""Standard deviations for a confidence of 95 % that enough clients respond."""
MAX_TRIES = 3
"""How often a cohort that turns out more or less reliable than the last one is selected again."""
MIN_PARTICIPATION = 0.1
"""Participation ratio below which the responses of a client are missing in the model."""


def n_to_invite(target_responses: int, response_rate: float) -> int:
    r"""Return the least n of whom m respond with 95 % confidence, each with the same rate s.

    n s >= m + 1.64 sqrt(n s (1 - s)), within the limits of "auto".

    >>> [n_to_invite(25, rate) for rate in (0.95, 0.9, 0.8)]
    [33, 33, 37]
    """
    m = target_responses
    spread = Z_95 * math.sqrt(response_rate * (1.0 - response_rate))
    root = (spread + math.sqrt(spread**2 + 4.0 * response_rate * m)) / (2.0 * response_rate)
    least, most = max_invited(MIN_OVER_SELECTION, m), max_invited("auto", m)
    return min(max(math.ceil(root**2 - 1e-9), least), most)


def select_enough(
    select: Callable[[int], Selection],
    *,
    target_responses: int,
    context: RoundContext,
    response_rate: float,
) -> tuple[int, Selection, float]:
    """Select a cohort of which enough clients will respond, for over-selection "auto".

    Args:
        select: Selects n clients; pure.
        target_responses: How many responses close the round.
        context: The context of the round.
        response_rate: Mean response rate of the last cohort, from which the search starts.

    Returns:
        How many clients were to be invited, the selection, and the mean response rate of its
        cohort, from which the next search starts.
    """
    m = target_responses
    n = n_to_invite(m, response_rate)
    selection = select(n)
    if not len(selection.clients):
        return n, selection, response_rate
    for _ in range(MAX_TRIES):
        response_rate = float(np.mean(context.pool.response_rate(selection.clients)))
        wanted = n_to_invite(m, response_rate)
        if n - 1 <= wanted <= n:  # one invitation too many does no harm
            break
        if len(selection.clients) == len(context.available) < wanted:
            break
        n = wanted
        selection = select(n)
    n_spare = len(selection.clients) - m
    if drops_chronically_late(context, selection.clients, n_spare):
        together = select(m)
        if drops_chronically_late(context, together.clients, n_spare):
            return m, together, response_rate
    return n, selection, response_rate


def drops_chronically_late(context: RoundContext, cohort: IntArray, n_spare: int) -> bool:
    """Return whether over-selection would only ever drop the same chronically late clients.

    The round then waits for every client; otherwise clients that are slower than all others would
    never enter the model. It is true if the cohort has as many chronically late clients as
    responses would be dropped, or fewer with large participation deficits. A client is chronically
    late if more of its responses were dropped than entered the model, and more than one.
    """
    if n_spare <= 0:
        return False
    dropped, responded = pick(context.task.dropped, cohort), pick(context.pool.responded, cohort)
    is_late = (dropped > 1) & (2 * dropped > responded)
    kept = (responded - dropped)[is_late].astype(np.float64)
    deficit = participation_deficit(pick(context.task.fair_count, cohort)[is_late], kept)
    return bool(is_late.any()) and n_spare <= float(np.maximum(deficit, 1.0).sum())


def participation_deficit(fair_count: FloatArray, participations: FloatArray) -> FloatArray:
    """Return max(2 d - 1, 0) for clients that are d participations below their minimum.

    The minimum is MIN_PARTICIPATION times the fair count.
    """
    return np.maximum(2.0 * (MIN_PARTICIPATION * fair_count - participations) - 1.0, 0.0)
