"""Which clients are available: at random, as recorded, and as phones are."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.simulation import Independent, read_availability
from bsfl.simulation.availability import phones_availability

DEVICES = Path(__file__).parents[3] / "shared" / "devices"


def read(path, n_clients=3, **settings):
    return read_availability(n_clients, np.random.default_rng(0), path=path, **settings)


def test_independent_availability_has_its_rate():
    rng = np.random.default_rng(0)
    reached = np.mean([Independent(0.3).reachable(t, 0.0, 1000, rng).mean() for t in range(50)])
    # 50,000 coin flips: four standard deviations are 0.0082
    assert reached == pytest.approx(0.3, abs=0.0082)


def test_recorded_availability_repeats_its_steps(tmp_path):
    state = np.array([[1, 0, -1], [0, 1, 1]], dtype=np.int8)
    np.savez(tmp_path / "a.npz", state=state)
    model = read(tmp_path / "a.npz", rounds_per_step=2)
    rows = [model.reachable(t, 0.0, 3, np.random.default_rng(0)).tolist() for t in range(1, 6)]
    assert rows == [(state[step][model.device] == 1).tolist() for step in (0, 0, 1, 1, 0)]


@pytest.mark.skipif(not DEVICES.is_dir(), reason="the recorded devices are not here")
def test_recorded_phones_are_rarely_available():
    path = DEVICES / "flash_availability_30min_723dev.npz"
    model = read(path, 723)
    rates = np.mean(
        [model.reachable(t, 0.0, 723, np.random.default_rng(0)) for t in range(1, 242)], axis=0
    )
    # 8 % of what is known; unknown counts as not available
    state = np.load(path)["state"]
    assert np.mean(state[state >= 0] == 1) == pytest.approx(0.08, abs=0.005)
    assert rates.mean() == pytest.approx(np.mean(state == 1))
    assert np.mean(rates == 0) == pytest.approx(0.29, abs=0.01)


def npy(shape, content=b""):
    header = f"{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy((10**6, 10**6)), "its header claims 1,000,000,000,000"),
        (npy((1,) * 1000, b"\0"), "cannot be read as an .npz or .npy"),
        (npy((3, 3)), "Failed to read all data for array"),
        (npy((0, 0)), r"must be \[time, device\]"),
        (npy((2, 2), b"\1\1\1\5"), r"with values 1, 0 and -1"),
        (b"PK\3\4", "File is not a zip file"),
        (b"", "File is not a zip file"),
    ],
)
def test_a_file_that_is_no_recording_is_rejected_by_name(tmp_path, content, message):
    for name in ("a.npy", "a.npz"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInput, match=f"{name}.*{message}|{message}.*{name}"):
            read(tmp_path / name)


def test_an_archive_that_was_cut_or_holds_something_else_is_rejected(tmp_path):
    np.savez_compressed(tmp_path / "whole.npz", state=np.ones((50, 20), dtype=np.int8))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-30])
    np.savez(tmp_path / "objects.npz", state=np.array([[None]]))
    for name in ("cut.npz", "objects.npz"):
        with pytest.raises(InvalidInput, match=f"{name} cannot be read as an .npz or .npy file"):
            read(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("other.npy", npy((2, 2), b"\1\1\1\1"))
    with pytest.raises(InvalidInput, match="there is no array 'state' in the file"):
        read(tmp_path / "other.npz")


def test_phones_come_and_go_as_recorded_phones_did():
    record = phones_availability(20_000, np.random.default_rng(0), probability=0.08)
    there = record.state == 1
    share = there.mean(axis=0)
    assert there.mean() == pytest.approx(0.08, abs=0.003)
    assert (share == 0).mean() > 0.29, "29 % can never be reached"
    assert np.quantile(share, 0.95) > 0.25, "and some often are"
    stays = (there[1:] & there[:-1]).sum() / there[:-1].sum()
    assert stays == pytest.approx(0.76, abs=0.01)
    with pytest.raises(InvalidInput, match="probability must be"):
        phones_availability(10, np.random.default_rng(0), probability=0.5)
