"""Populations by name, and the built-in phones against real ones."""

from pathlib import Path

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation import POPULATIONS

DEVICES = Path(__file__).parents[3] / "shared" / "devices"


def test_authors_bimodal_population():
    model = POPULATIONS["authors-bimodal"](1000, np.random.default_rng(0), slow_share=0.2)
    typical = np.median([model.draw(t, np.random.default_rng(t)) for t in range(60)], axis=0)
    assert np.sum(typical > 0.5) == 200
    draws = model.draw(1, np.random.default_rng(1))
    assert draws.min() >= 0.05
    assert draws.max() <= 1.0


def test_authors_three_speeds_population():
    model = POPULATIONS["authors-three-speeds"](1000, np.random.default_rng(0))
    speed = 0.1 * model.mean_inverse(1, 0.1, 1.0)
    assert (np.sum(speed > 0.9), np.sum(speed < 0.135)) == (30, 100)


def test_three_speeds_take_any_shares_that_fit():
    for slow, fast, n in ((0.5, 0.5, 7), (0.9, 0.1, 10), (0.8, 0.2, 10)):
        rng = np.random.default_rng(0)
        model = POPULATIONS["authors-three-speeds"](n, rng, slow_share=slow, fast_share=fast)
        assert model.n_clients == n
        n_fast = np.count_nonzero(model.draw(1, np.random.default_rng(1)) < 0.2)
        assert n_fast >= round(fast * n) - 1


@pytest.mark.parametrize("name", ["lognormal", "shifted-exponential", "phones"])
def test_other_populations_give_positive_seconds(name):
    model = POPULATIONS[name](200, np.random.default_rng(0))
    draws = model.draw(1, np.random.default_rng(1))
    assert draws.shape == (200,)
    assert np.all(draws > 0)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("authors-bimodal", {"slow_share": 1.5}, "slow_share must be between 0 and 1, got 1.5"),
        ("lognormal", {"median": 0}, "median must be a finite number above 0, got 0"),
        ("lognormal", {"sigma": -1}, "sigma must be between 0 and 10, got -1"),
        ("shifted-exponential", {"shift": (3, 1)}, r"shift must be a range .* got \(3, 1\)"),
        ("phones", {"model_bytes": 0}, "model_bytes must be a finite number above 0, got 0"),
        ("phones", {"samples": 0}, "samples must be a finite number above 0, got 0"),
    ],
)
def test_wrong_settings_are_rejected(name, settings, message):
    with pytest.raises(InvalidInput, match=message):
        POPULATIONS[name](10, np.random.default_rng(0), **settings)


def test_latencies_are_resampled_client_by_client(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("client,latency_s\na,1.5\nb,20\na,2.5\n\nb,30\n")
    model = POPULATIONS["trace"](2, np.random.default_rng(0), path=str(path))
    draws = np.array([model.draw(t, np.random.default_rng(t)) for t in range(200)])
    assert {tuple(sorted(set(column))) for column in draws.T} == {(1.5, 2.5), (20.0, 30.0)}
    assert sorted(model.mean_inverse(1, 0.1, 99.0)) == pytest.approx(
        [(1 / 20 + 1 / 30) / 2, (1 / 1.5 + 1 / 2.5) / 2]
    )


def test_capacities_become_latencies(tmp_path):
    (tmp_path / "phones.csv").write_text(
        "client,compute_ms_per_sample,bandwidth_kbps\np,100,8000\n"
    )
    settings = {"path": str(tmp_path / "phones.csv"), "samples": 10, "model_bytes": 1e6}
    model = POPULATIONS["trace"](3, np.random.default_rng(0), **settings, jitter=0.0)
    # 3 * 10 * 0.1 s of training and 2 * 8e6 bits at 8e6 bit/s
    assert model.draw(1, np.random.default_rng(0)) == pytest.approx([5.0, 5.0, 5.0])


@pytest.mark.skipif(not DEVICES.is_dir(), reason="the recorded devices are not here")
def test_built_in_phones_are_like_twenty_thousand_real_ones():
    """Two-sample Kolmogorov-Smirnov distance of latencies, and their quantiles."""
    n = 20_000
    settings = {"samples": 120, "model_bytes": 1_000_000, "jitter": 0.0}
    path = str(DEVICES / "fedscale_capacity_20k.csv")
    rng = np.random.default_rng(0)
    real = np.sort(POPULATIONS["trace"](n, rng, path=path, **settings).draw(1, rng))
    built_in = np.sort(POPULATIONS["phones"](n, rng, **settings).draw(1, rng))
    grid = np.concatenate([real, built_in])
    below = [np.searchsorted(one, grid, side="right") for one in (real, built_in)]
    distance = np.abs(below[0] - below[1]).max() / n
    # by chance two samples of this size differ by 0.0136 (5 %); twice that is allowed to the
    # straight lines between 23 quantiles
    assert distance < 0.027
    for q in (1, 5, 25, 50, 75, 95, 99):
        assert np.percentile(built_in, q) == pytest.approx(np.percentile(real, q), rel=0.08)
