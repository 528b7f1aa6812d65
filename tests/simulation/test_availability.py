"""Which clients are available: at random, as recorded, and as phones are."""

from pathlib import Path

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation import Independent, read_availability
from bsfl.simulation.availability import phones_availability

DEVICES = Path(__file__).parents[3] / "shared" / "devices"


def test_independent_availability_has_its_rate():
    rng = np.random.default_rng(0)
    reached = np.mean([Independent(0.3).reachable(t, 0.0, 1000, rng).mean() for t in range(50)])
    # 50,000 coin flips: four standard deviations are 0.0082
    assert reached == pytest.approx(0.3, abs=0.0082)


def test_recorded_availability(tmp_path):
    state = np.array([[1, 0, -1], [0, 1, 1]], dtype=np.int8)
    np.savez(tmp_path / "a.npz", state=state)
    model = read_availability(
        3, np.random.default_rng(0), path=tmp_path / "a.npz", rounds_per_step=2
    )
    rows = [model.reachable(t, 0.0, 3, np.random.default_rng(0)) for t in range(1, 6)]
    for row, step in zip(rows, (0, 0, 1, 1, 0), strict=True):
        assert row.tolist() == (state[step][model.device] == 1).tolist()
    np.save(tmp_path / "b.npy", np.full((2, 2), 7))
    with pytest.raises(InvalidInput, match="availability must be .time, device. with values 1, 0"):
        read_availability(3, np.random.default_rng(0), path=tmp_path / "b.npy")
    np.savez(tmp_path / "c.npz", other=state)
    with pytest.raises(InvalidInput, match="there is no array 'state' in the file"):
        read_availability(3, np.random.default_rng(0), path=tmp_path / "c.npz")


@pytest.mark.skipif(not DEVICES.is_dir(), reason="the recorded devices are not here")
def test_recorded_phones_are_rarely_available():
    path = DEVICES / "flash_availability_30min_723dev.npz"
    model = read_availability(723, np.random.default_rng(0), path=path)
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
            read_availability(3, np.random.default_rng(0), path=tmp_path / name)
    np.savez(tmp_path / "other.npz", states=np.ones((5, 2)))
    with pytest.raises(InvalidInput, match="there is no array 'state'"):
        read_availability(3, np.random.default_rng(0), path=tmp_path / "other.npz")


def test_phones_come_and_go_as_recorded_phones_did():
    rng = np.random.default_rng(0)
    record = phones_availability(20_000, rng, probability=0.08)
    there = record.state == 1
    share = there.mean(axis=0)
    assert there.mean() == pytest.approx(0.08, abs=0.003)
    assert (share == 0).mean() > 0.29, "29 % can never be reached"
    assert np.quantile(share, 0.95) > 0.25, "and some often are"
    stays = (there[1:] & there[:-1]).sum() / there[:-1].sum()
    assert stays == pytest.approx(0.76, abs=0.01)


def test_phones_cannot_be_made_to_be_there_all_the_time():
    with pytest.raises(InvalidInput, match="probability must be"):
        phones_availability(10, np.random.default_rng(0), probability=0.5)
