"""Recorded clients, and the built-in phones against real ones."""

from pathlib import Path

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation import POPULATIONS, Independent, read_availability
from bsfl.simulation.traces import read_trace
from bsfl.types import LATENCY_RANGE

DEVICES = Path(__file__).parents[3] / "shared" / "devices"


def test_latencies_are_resampled_client_by_client(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("client,latency_s\na,1.5\nb,20\na,2.5\n\nb,30\n")
    model = POPULATIONS["trace"](2, np.random.default_rng(0), path=str(path))
    draws = np.array([model.draw(t, np.random.default_rng(t)) for t in range(200)])
    assert {tuple(sorted(set(column))) for column in draws.T} == {(1.5, 2.5), (20.0, 30.0)}
    assert sorted(model.mean_inverse(1, 0.1, 99.0)) == pytest.approx(
        [(1 / 20 + 1 / 30) / 2, (1 / 1.5 + 1 / 2.5) / 2]
    )


def test_a_log_with_more_columns_is_a_trace(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "timestamp,client,latency_ms,outcome\n"
        "2026-03-01T08:00:00Z,a,1500,success\n"
        "2026-03-01T08:01:00Z,a,,error\n"
        "2026-03-01T08:02:00Z,b,45000,timeout\n"
        "2026-03-01T08:03:00Z,b,50000,late\n"
    )
    columns, rows = read_trace(path)
    assert columns == ("latency_s",)
    never_s = LATENCY_RANGE[1]
    assert {client: values.ravel().tolist() for client, values in rows.items()} == {
        "a": [1.5, never_s],
        "b": [never_s, 50.0],
    }


def test_capacities_become_latencies(tmp_path):
    path = tmp_path / "phones.csv"
    path.write_text("client,compute_ms_per_sample,bandwidth_kbps\np,100,8000\n")
    model = POPULATIONS["trace"](
        3, np.random.default_rng(0), path=str(path), samples=10, model_bytes=1e6, jitter=0.0
    )
    # 3 * 10 * 0.1 s of training and 2 * 8e6 bits at 8e6 bit/s
    assert model.draw(1, np.random.default_rng(0)) == pytest.approx([5.0, 5.0, 5.0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the first line must be client,latency_s or client,compute_ms_per_sample"),
        ("client,speed\na,1\n", "got client,speed"),
        ("client,latency,outcome\na,1,fine\n", "line 2: the outcome must be ok, timeout, failed"),
        ("client,latency_s\n", "there is no row below the header"),
        (
            "client,latency_s\na,1\nb,-2\n",
            "line 3: latency_s must be a number from 1e-09 to 1e\\+12, got '-2'",
        ),
        (
            "client,latency_s\na,fast\n",
            "line 2: latency_s must be a number from 1e-09 to 1e\\+12, got 'fast'",
        ),
        ("client,latency_s\na,1,2\n", "line 2: expected 2 values, got 3"),
        (
            "client,compute_ms_per_sample,bandwidth_kbps\na,1,1\na,1,1\n",
            "client 'a' has more than one row",
        ),
    ],
)
def test_bad_traces(tmp_path, content, message):
    path = tmp_path / "log.csv"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=message):
        read_trace(path)


def test_independent_availability_has_its_rate():
    rng = np.random.default_rng(0)
    reached = np.mean([Independent(0.3).reachable(t, 0.0, 1000, rng).mean() for t in range(50)])
    # 50,000 coin flips: four standard deviations are 0.0082
    assert reached == pytest.approx(0.3, abs=0.0082)


def test_recorded_availability(tmp_path):
    state = np.array([[1, 0, -1], [0, 1, 1]], dtype=np.int8)
    np.savez(tmp_path / "a.npz", state=state)
    model = read_availability(tmp_path / "a.npz", 3, np.random.default_rng(0), rounds_per_step=2)
    rows = [model.reachable(t, 0.0, 3, np.random.default_rng(0)) for t in range(1, 6)]
    for row, step in zip(rows, (0, 0, 1, 1, 0), strict=True):
        assert row.tolist() == (state[step][model.device] == 1).tolist()
    np.save(tmp_path / "b.npy", np.full((2, 2), 7))
    with pytest.raises(InvalidInput, match="availability must be .time, device. with values 1, 0"):
        read_availability(tmp_path / "b.npy", 3, np.random.default_rng(0))
    np.savez(tmp_path / "c.npz", other=state)
    with pytest.raises(InvalidInput, match="there is no array 'state' in the file"):
        read_availability(tmp_path / "c.npz", 3, np.random.default_rng(0))


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
    distance = (
        np.abs(
            np.searchsorted(real, grid, side="right")
            - np.searchsorted(built_in, grid, side="right")
        ).max()
        / n
    )
    # by chance two samples of this size differ by 0.0136 (5 %); twice that is allowed to the
    # straight lines between 23 quantiles
    assert distance < 0.027
    for q in (1, 5, 25, 50, 75, 95, 99):
        assert np.percentile(built_in, q) == pytest.approx(np.percentile(real, q), rel=0.08)


@pytest.mark.skipif(not DEVICES.is_dir(), reason="the recorded devices are not here")
def test_recorded_phones_are_rarely_available():
    path = DEVICES / "flash_availability_30min_723dev.npz"
    model = read_availability(path, 723, np.random.default_rng(0))
    rates = np.mean(
        [model.reachable(t, 0.0, 723, np.random.default_rng(0)) for t in range(1, 242)], axis=0
    )
    # 8 % of what is known; unknown counts as not available
    state = np.load(path)["state"]
    assert np.mean(state[state >= 0] == 1) == pytest.approx(0.08, abs=0.005)
    assert rates.mean() == pytest.approx(np.mean(state == 1))
    assert np.mean(rates == 0) == pytest.approx(0.29, abs=0.01)


def test_files_that_break_off_are_refused(tmp_path):
    whole = tmp_path / "whole.npz"
    np.savez_compressed(whole, state=np.ones((50, 20), dtype=np.int8))
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "cut.npz").write_bytes(whole.read_bytes()[:-30])
    np.savez(tmp_path / "objects.npz", state=np.array([[None]]))
    for name in ("empty.npy", "cut.npz", "objects.npz"):
        with pytest.raises(InvalidInput, match=f"{name} cannot be read as an .npz or .npy file"):
            read_availability(tmp_path / name, 3, np.random.default_rng(0))
    np.savez(tmp_path / "other.npz", states=np.ones((5, 2)))
    with pytest.raises(InvalidInput, match="there is no array 'state'"):
        read_availability(tmp_path / "other.npz", 3, np.random.default_rng(0))


@pytest.mark.parametrize(("slow", "fast", "n"), [(0.5, 0.5, 7), (0.9, 0.1, 10), (0.8, 0.2, 10)])
def test_three_speeds_take_any_shares_that_fit(slow, fast, n):
    model = POPULATIONS["authors-three-speeds"](
        n, np.random.default_rng(0), slow_share=slow, fast_share=fast
    )
    assert model.n_clients == n
    assert np.count_nonzero(model.draw(1, np.random.default_rng(1)) < 0.2) >= round(fast * n) - 1
