"""Named streams of random numbers."""

import numpy as np

from bsfl.random import stream


def test_same_call_same_numbers_and_every_part_matters():
    base = stream(1, "latency", 2, 3).random(4)
    assert np.array_equal(base, stream(1, "latency", 2, 3).random(4))
    for other in ((2, "latency", 2, 3), (1, "policy", 2, 3), (1, "latency", 3, 2)):
        assert not np.array_equal(base, stream(*other).random(4))


def test_the_global_generator_is_left_alone():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    stream(1, "a").random(10)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
