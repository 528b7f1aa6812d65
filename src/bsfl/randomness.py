"""Named random streams that all grow from one root seed."""

import hashlib

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
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    key = int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:], "big")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(*key, *index)))
