"""The generalization term g: how much a client's data is missing from the model.

g_k = |d_k|^beta sgn(d_k), where the deficit d_k says how far client k is below its fair share of
the rounds. This file holds the power and the deficits that come with bsfl; a user's own function
of the same signature works as well.
"""

from typing import Protocol

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.fairness import capped_shares
from bsfl.records import FloatArray, IntArray, RoundContext
from bsfl.registry import Registry


class History(Protocol):
    """What a deficit may look at: every policy state that has these arrays will do."""

    selected: IntArray
    loss: FloatArray

    def served(self, clients: IntArray) -> IntArray:
        """Return c_k of clients: how often each took part."""


class Deficit(Protocol):
    """Any function with this signature can be BSFL's `generalization`."""

    def __call__(self, clients: IntArray, history: History, context: RoundContext) -> FloatArray:
        """Return a number in [-1, 1] for each of `clients`: positive when chosen too rarely."""


def signed_power(deficit: FloatArray, beta: int) -> FloatArray:
    r"""Return |d|^beta sgn(d); the sign survives for even beta (both equations for g).

    >>> signed_power(np.array([-0.5, 0.0, 0.5]), 2)
    array([-0.25,  0.  ,  0.25])
    """
    return deficit if beta == 1 else np.sign(deficit) * np.abs(deficit) ** beta


def equal_deficit(clients: IntArray, history: History, context: RoundContext) -> FloatArray:
    r"""Return m/K - c_k/t: every client deserves the same share (the i.i.d. equation for g)."""
    n_members = context.n_members(len(history.selected))
    return context.quota / n_members - _rate(clients, history, context)


def weighted_deficit(clients: IntArray, history: History, context: RoundContext) -> FloatArray:
    r"""Return m d_k / sum d - c_k/t with d_k = q_k n_k (the non-i.i.d. equation for g).

    Departure: a target above 1 cannot be met and is capped, its excess handed to the others.
    """
    if context.roster is None:
        raise InvalidInput("generalization='weighted' needs samples for every client")
    target = capped_shares(context.roster.significance, context.quota)
    return target[clients] - _rate(clients, history, context)


def loss_deficit(clients: IntArray, history: History, context: RoundContext) -> FloatArray:
    r"""Return m l_k / sum l - c_k/t: clients the model still fits badly deserve more rounds.

    l_k is the last loss client k reported; one that never did counts with the mean of the others.
    The paper names a loss-based g as an option and leaves its form open; this is ours.
    """
    members = None if context.roster is None else context.roster.members
    known = ~np.isnan(history.loss)
    if members is not None:
        known &= members
    mean = float(history.loss[known].mean()) if known.any() else 1.0
    loss = np.where(known, history.loss, mean)
    if members is not None:
        loss[~members] = 0.0
    if loss.sum() == 0:
        return equal_deficit(clients, history, context)
    return capped_shares(loss, context.quota)[clients] - _rate(clients, history, context)


def opportunity_deficit(clients: IntArray, history: History, context: RoundContext) -> FloatArray:
    r"""Return (e_k - c_k)/t: what a client was owed by the rounds in which it could be chosen.

    Who was away for a while is owed nothing for it, as it is in m/K - c_k/t.
    """
    share = min(1.0, context.quota / max(len(context.available), 1))
    fair = context.fair(clients, len(history.selected)) + share
    return np.asarray((fair - history.served(clients)) / context.rounds(clients))


def _rate(clients: IntArray, history: History, context: RoundContext) -> FloatArray:
    """Return c_k/t, t counted from the round in which the client joined."""
    return np.asarray(history.served(clients) / context.rounds(clients))


DEFICITS: Registry[Deficit] = Registry(
    "generalization",
    {
        "equal": equal_deficit,
        "opportunity": opportunity_deficit,
        "weighted": weighted_deficit,
        "loss": loss_deficit,
    },
)
