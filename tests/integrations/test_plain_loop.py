"""The example of a training loop of one's own."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bsfl import Scheduler, UniformRandom


@pytest.fixture(scope="module")
def example(load_example):
    return load_example("plain_loop")


def test_it_saves_time(example):
    taken = example.main(rounds=25)
    assert taken["bsfl"] < taken["random"]


def test_late_and_failing_clients_are_reported(example):
    def fail(w):
        raise RuntimeError("no battery")

    clients = {"good": lambda w: w + 1, "bad": fail, "late": lambda w: time.sleep(1.0)}
    scheduler = Scheduler(UniformRandom(), cohort_size=3)
    with ThreadPoolExecutor(max_workers=3) as pool:
        w = example.play_round(scheduler, clients, np.zeros(2), pool, deadline_s=0.3)
    assert w.tolist() == [1.0, 1.0]
    assert scheduler.outstanding == []
