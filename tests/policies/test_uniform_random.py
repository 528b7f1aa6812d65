"""Uniform random selection: its inclusion probabilities."""

from policy_rounds import assert_frequencies, drive

from bsfl.policies import UniformRandom


def test_all_clients_are_included_equally_often():
    driver = drive(UniformRandom(), 8, 3)
    here = driver.context()
    assert_frequencies(lambda rng: driver.select(here, rng), [3 / 8] * 8, 6000)
