"""`bsfl data`: where data sets are, and getting one with the reason when that fails."""

from dataclasses import replace

import pytest

from bsfl.learning.datasets import CATALOGUE
from bsfl.learning.datasets.catalogue import FASHION_MNIST


@pytest.fixture(autouse=True)
def closed(tmp_path, monkeypatch):
    """Give fashion-mnist an address that cannot be reached, and every test its own cache."""
    entry = replace(FASHION_MNIST, system=(), address="http://127.0.0.1:1/")
    monkeypatch.setitem(CATALOGUE.known, "fashion-mnist", entry)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("BSFL_DATA_DIR", raising=False)
    monkeypatch.setattr("bsfl.learning.datasets.load.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr("bsfl.learning.datasets.load.RETRIES", 0)


def test_the_list_says_where_data_sets_are(bsfl, tmp_path):
    listed = bsfl("data", "list")
    assert listed.output == bsfl("data").output
    small, full, _, *sources = listed.output.splitlines()[1:]
    assert " ".join(small.split()).endswith("6,000 + 1,000 28x28x1 5 MB MIT part of bsfl")
    assert " ".join(full.split()).endswith("60,000 + 10,000 28x28x1 55 MB MIT not here")
    assert sources[0] == "bsfl data get fashion-mnist  downloads from http://127.0.0.1:1/"
    (tmp_path / "fashion-mnist.npz").touch()
    listed = bsfl("data", "list", "--data-dir", tmp_path).output
    assert f"{tmp_path}(datafolder)" in "".join(listed.split()), "a long path is folded"
    assert "bsfl data get fashion-mnist " not in listed


def test_a_data_set_that_is_here_is_verified(bsfl):
    got = bsfl("data", "get", "fashion-mnist-small")
    assert got.exit_code == 0
    assert "fashion-mnist-small: verified, from part of bsfl; it is in " in got.output


@pytest.mark.parametrize(
    ("name", "folder", "code", "message"),
    [
        ("fashion-mnist", ".", 1, "official address: http://127.0.0.1:1/ cannot be reached"),
        ("mnist-fashion", ".", 2, "unknown data set 'mnist-fashion'"),
        ("fashion-mnist", "file", 2, "file is a file; a folder is needed"),
    ],
)
def test_what_goes_wrong_is_said(bsfl, tmp_path, name, folder, code, message):
    (tmp_path / "file").touch()
    done = bsfl("data", "get", name, "--data-dir", tmp_path / folder)
    assert done.exit_code == code
    assert message in done.output
    assert ("official address" in done.output) == (code == 1)
