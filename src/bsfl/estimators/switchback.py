"""Switchback experiments: two policies alternate in random blocks of rounds on one federation.

A federation cannot be split in two, as clients and model are shared, so the units of the experiment
are blocks of rounds (Bojinov, Simchi-Levi, Zhao 2023, Design and analysis of switchback
experiments). Each pair of blocks has both policies in random order, so that trends cancel.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from bsfl.random import stream
from bsfl.types import FloatArray

CONFIDENCE = 0.95
MIN_PAIRS = 6
"""Pairs of blocks from which on an interval is finite: fewer than 2^6 orders exclude nothing."""
MAX_EXACT, N_SUBSETS = 12, 9999
"""Pairs up to which all subsets are used, and how many are drawn at random beyond."""


def first_or_second(block: int, seed: int) -> int:
    """Return which of two policies, 0 or 1, selects in a block; a pair of blocks has both.

    >>> [first_or_second(block, seed=0) for block in range(8)]
    [1, 0, 0, 1, 0, 1, 1, 0]
    """
    return block % 2 ^ _coin(block // 2, seed)


@cache
def _coin(pair: int, seed: int) -> int:
    return int(stream(seed, "alternating", pair).integers(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Successive rounds of one policy.

    Attributes:
        number: Its number, from 0.
        arm: The policy that selected, 0 or 1.
        n_rounds: Rounds that count; the first ones of a block do not.
        total_s: How long they took.
        n_responses: Responses that entered the model.
    """

    number: int
    arm: int
    n_rounds: int
    total_s: float
    n_responses: int


def randomization_interval(differences: FloatArray) -> tuple[float, float]:
    """Return the 95 % interval of a mean difference that the random order of pairs allows.

    Had the order of a pair been the other one, its difference from the true effect would have the
    other sign. So each of the 2^n - 1 means of subsets is a typical value (Hartigan 1969): the true
    effect is between any two neighbours with equal probability. Infinite with few pairs.

    >>> low, high = randomization_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    >>> round(low, 3), round(high, 3)
    (1.0, 6.0)
    """
    n = len(differences)
    if n < MIN_PAIRS:
        return -np.inf, np.inf
    if n <= MAX_EXACT:
        chosen = np.array(list(product((0, 1), repeat=n)))[1:]
    else:
        chosen = stream(0, "switchback-subsets").integers(2, size=(N_SUBSETS, n))
        chosen = chosen[chosen.any(axis=1)]
    means = np.sort(chosen @ differences / chosen.sum(axis=1))
    out = int((1.0 - CONFIDENCE) / 2 * (len(means) + 1))
    return float(means[out - 1]), float(means[-out])
