"""The generalization term g: how far a client's data is underrepresented in the model.

g_k = |d_k|^beta sgn(d_k), where the deficit d_k says how far client k is below its fair share of
the rounds. This module holds the power and the built-in deficits; a custom function of the same
signature works as well.
"""

from collections.abc import Callable

import numpy as np

from bsfl._core.registry import Registry
from bsfl.errors import InvalidInput
from bsfl.estimators.fairness import capped_shares
from bsfl.types import FloatArray, IntArray, RoundContext

Deficit = Callable[[IntArray, RoundContext], FloatArray]
"""Returns a number in [-1, 1] for each of these clients, positive if it was selected too rarely.

`context.task` and `context.pool` hold the counts and the last losses.
"""


def signed_power(deficit: FloatArray, beta: int) -> FloatArray:
    r"""Return |d|^beta sgn(d); the sign survives for even beta (both equations for g).

    >>> signed_power(np.array([-0.5, 0.0, 0.5]), 2)
    array([-0.25,  0.  ,  0.25])
    """
    return deficit if beta == 1 else np.sign(deficit) * np.abs(deficit) ** beta


def equal_deficit(clients: IntArray, context: RoundContext) -> FloatArray:
    r"""Return m/K - c_k/t: every client has the same target (the i.i.d. equation for g)."""
    return context.target_responses / context.n_clients - _rate(clients, context)


def weighted_deficit(clients: IntArray, context: RoundContext) -> FloatArray:
    r"""Return m d_k / sum d - c_k/t with d_k = q_k n_k (the non-i.i.d. equation for g).

    Departure: a target above 1 cannot be met; it is capped, and the others divide the excess.
    """
    target = capped_shares(context.pool.significance, context.target_responses)
    return target[clients] - _rate(clients, context)


def loss_deficit(clients: IntArray, context: RoundContext) -> FloatArray:
    r"""Return m l_k / sum l - c_k/t: clients with larger losses have larger targets.

    l_k is the last loss that client k reported, and the mean of the others for a client without
    one. The paper names a loss-based g as an option and leaves its form open; this is ours.
    """
    members, last = context.pool.members, context.task.last_loss
    known = last >= 0.0  # another policy may have accepted losses below 0
    if members is not None:
        known &= members
    mean = float(last[known].mean()) if known.any() else 1.0
    loss = np.where(known, last, mean)
    if members is not None:
        loss[~members] = 0.0
    if loss.sum() == 0:
        return equal_deficit(clients, context)
    return capped_shares(loss, context.target_responses)[clients] - _rate(clients, context)


def opportunity_deficit(clients: IntArray, context: RoundContext) -> FloatArray:
    r"""Return (e_k - c_k)/t: how far a client is below its fair count.

    Unlike in m/K - c_k/t, rounds in which the client was not available do not count.
    """
    share = min(1.0, context.target_responses / max(len(context.available), 1))
    fair = context.fair_count(clients) + share
    return np.asarray((fair - context.served(clients)) / context.rounds(clients))


def _rate(clients: IntArray, context: RoundContext) -> FloatArray:
    """Return c_k/t, t counted from the round in which the client joined."""
    return np.asarray(context.served(clients) / context.rounds(clients))


DEFICITS: Registry[Deficit] = Registry(
    "generalization",
    {
        "equal": equal_deficit,
        "opportunity": opportunity_deficit,
        "weighted": weighted_deficit,
        "loss": loss_deficit,
    },
)


def generalization_term(choice: str | Deficit, context: RoundContext, beta: int) -> FloatArray:
    """Return g_k of the available clients, by a deficit or the name of one."""
    deficit = DEFICITS.resolve("generalization", choice)
    values = np.array(deficit(context.available, context), dtype=np.float64)
    if values.shape != context.available.shape or not np.isfinite(values).all():
        raise InvalidInput("generalization must return one finite number for every client")
    return signed_power(values, beta)
