"""How many to invite, so that enough of them answer."""

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.estimation.ledger import Ledger
from bsfl.records import IntArray, RoundContext

Invite = float | Literal["auto"]
"""How many times enough are invited; "auto": by how reliable clients have been."""
LEAST, MOST = 1.3, 2.0
"""Limits of "auto": a round ends with its m-th answer, and the slowest few take most of it."""
MOST_TIMES = 1e6
"""Most times enough that anybody can mean; then the number of those asked can be saved."""
CONFIDENCE = NormalDist().inv_cdf(0.95)
TRIES = 3
"""How often a cohort that turns out more or less reliable than the last one is chosen again."""


def check_invite(invite: Any) -> Invite:
    """Return how many to invite, after checking that a value says that."""
    if not isinstance(invite, str):
        return checks.between("invite", checks.at_least("invite", invite, 1.0), 1.0, MOST_TIMES)
    if invite != "auto":
        shown = checks.short(invite)
        raise InvalidInput(f'invite must be a number of at least 1 or "auto", got {shown}')
    return "auto"


def most_invited(invite: Invite, enough: int) -> int:
    """Return how many are invited at most when so many answers are enough.

    >>> most_invited(1.25, 10), most_invited("auto", 10)
    (13, 20)
    """
    return math.ceil(round((MOST if invite == "auto" else invite) * enough, 6))


def n_to_invite(enough: int, chance: float) -> int:
    r"""Return the least n of whom `enough` answer with 95 % confidence, each with some chance.

    n s >= m + 1.64 sqrt(n s (1 - s)), within the limits of "auto".

    >>> [n_to_invite(25, chance) for chance in (0.95, 0.9, 0.8)]
    [33, 33, 37]
    """
    doubt = CONFIDENCE * math.sqrt(chance * (1.0 - chance))
    root = (doubt + math.sqrt(doubt**2 + 4.0 * chance * enough)) / (2.0 * chance)
    least, most = math.ceil(round(LEAST * enough, 6)), most_invited("auto", enough)
    return min(max(math.ceil(root**2 - 1e-9), least), most)


def choose_enough(
    choose: Callable[[RoundContext], IntArray],
    context: RoundContext,
    ledger: Ledger,
    invite: Invite | None,
) -> tuple[RoundContext, IntArray]:
    """Return a cohort of whom enough will answer, and the round in which so many are chosen.

    Args:
        choose: Returns the cohort of a round; pure.
        context: The round, `enough` of whose answers end it.
        ledger: How reliable clients have been. It keeps what this cohort's chance is, from which
            the next search starts.
        invite: How many times enough are invited; None: as many as the round says.
    """
    enough, chance = context.quota, ledger.last_chance
    if invite is not None:
        n = n_to_invite(enough, chance) if invite == "auto" else most_invited(invite, enough)
        context = replace(context, cohort_size=n, enough=enough)
    cohort = choose(context)
    if invite != "auto" or len(cohort) == 0:
        return context, cohort
    for _ in range(TRIES):
        chance = float(np.mean(ledger.chance(cohort)))
        n = n_to_invite(enough, chance)
        if context.cohort_size - 1 <= n <= context.cohort_size:  # one too many does no harm
            break
        if len(cohort) == len(context.available) < n:
            break
        context = replace(context, cohort_size=n)
        cohort = choose(context)
    n_spare = len(cohort) - enough
    if shuts_out(ledger, cohort, n_spare):
        plain = replace(context, cohort_size=enough)
        together = choose(plain)
        if shuts_out(ledger, together, n_spare):
            context, cohort = plain, together
        else:
            cohort = choose(context)  # the last choice is the one that can be explained
    ledger.last_chance = chance  # now that nothing can be refused any more
    return context, cohort


def shuts_out(ledger: Ledger, cohort: IntArray, n_spare: int) -> bool:
    """Return whether those who would be left out of a round are those who mostly are.

    Then they are waited for: whoever is slower than all others would never enter the model. As many
    of them as would be left out are enough, and fewer where they are missed as much.
    """
    in_vain = cohort[ledger.in_vain(cohort)]
    return 0 < n_spare <= float(np.maximum(ledger.absence(in_vain), 1.0).sum())
