"""Named random streams that all grow from one root seed."""

import hashlib
from functools import cache

import numpy as np


def stream(seed: int, name: str, *index: int) -> np.random.Generator:
    """Return the generator of the stream `name` at `index`, always the same for the same call.

    Streams are independent of each other and of the order in which they are opened, so one part of
    a program may draw more or less without moving what another part sees, and a run can be taken
    up again at any round without having stored a generator.

    >>> stream(7, "latency", 3).random() == stream(7, "latency", 3).random()
    True
    >>> stream(7, "latency", 3).random() == stream(7, "latency", 4).random()
    False
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(*_key(name), *index))
    return np.random.Generator(np.random.PCG64(sequence))


@cache
def _key(name: str) -> tuple[int, int]:
    """Return two numbers that stand for a name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:], "big")
