"""Sources are tried in order, each with its reason; what was downloaded is verified and kept."""

import os
import socket
import subprocess
import sys
import threading
from functools import partial
from hashlib import md5
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from fake_data import fake_fashion, write_idx

from bsfl.errors import InvalidInput, NoSource
from bsfl.learning.datasets import CATALOGUE, get_dataset, load_dataset, where_is
from bsfl.learning.datasets.catalogue import CIFAR10, EMBEDDED, FASHION_MNIST
from bsfl.learning.datasets.load import folders, write_npz
from bsfl.learning.datasets.official_files import IDX_FILES


class Server(SimpleHTTPRequestHandler):
    """Serves a folder; the first request for each file breaks off, and is logged as a failure."""

    failed = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path in self.failed:
            return super().do_GET()
        self.failed.add(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"short")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give every test its own cache and no data folder."""
    monkeypatch.delenv("BSFL_DATA_DIR", raising=False)
    monkeypatch.setattr("bsfl.learning.datasets.load.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr("bsfl.learning.datasets.load.RETRIES", 0)
    return tmp_path / "cache"


@pytest.fixture
def fashion(tmp_path, monkeypatch):
    """Put a small fashion-mnist in the catalogue; its official address is on this machine."""
    monkeypatch.setenv("NO_PROXY", "*")
    served = tmp_path / "served"
    entry, arrays = fake_fashion()
    write_idx(served, arrays)
    names = [f"{name}.gz" for name in IDX_FILES.values()]
    Server.failed = {f"/{name}" for name in names}
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=served)) as web:
        threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{web.server_port}/"
        downloads = {name: md5((served / name).read_bytes()).hexdigest() for name in names}
        entry, _ = fake_fashion(address=address, downloads=downloads)
        monkeypatch.setitem(CATALOGUE.known, entry.name, entry)
        yield entry
        web.shutdown()


def test_the_order_of_the_folders(cache):
    mine = [("data folder", Path("mine")), ("cache", cache)]
    assert list(folders(CIFAR10, Path("mine"))) == mine
    system = Path("/usr/share/datasets/fashion-mnist")
    assert list(folders(FASHION_MNIST, Path("mine"))) == [*mine, ("system package", system)]


def test_a_download_is_kept_in_the_named_folder_or_the_cache(tmp_path, fashion, cache):
    for data_dir, kept, local in (
        (tmp_path / "mine", tmp_path / "mine", "data folder"),
        (None, cache, "cache"),
    ):
        found = get_dataset("fashion-mnist", data_dir=data_dir)
        assert (found.source, found.folder) == ("official address", kept)
        assert get_dataset("fashion-mnist", data_dir=data_dir).source == local
    assert [path.name for path in cache.iterdir()] == ["fashion-mnist.npz"]


def test_a_broken_download_is_tried_again(fashion, monkeypatch):
    monkeypatch.setattr("bsfl.learning.datasets.load.RETRIES", 1)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    Server.failed.remove("/train-images-idx3-ubyte.gz")
    assert get_dataset("fashion-mnist").source == "official address"


def test_when_all_sources_fail_one_error_lists_them(tmp_path, fashion, cache):
    np.savez(tmp_path / "fashion-mnist.npz", x_train=[1])
    (tmp_path / "served" / "train-images-idx3-ubyte.gz").write_bytes(b"closed\n\x1b[2Jtoday")
    lines = []
    with pytest.raises(NoSource) as caught:
        get_dataset("fashion-mnist", data_dir=tmp_path, log=lines.append)
    title, named, cached, official, advice = str(caught.value).splitlines()
    assert title == "fashion-mnist could not be obtained from any source:"
    assert named.startswith(f"  data folder: {tmp_path}: x_train is not the published array")
    assert cached == f"  cache: {cache} is no folder that holds fashion-mnist"
    assert official.startswith("  official address: MD5 hash of downloaded file (train-images")
    assert advice.endswith("in a folder and name the folder with --data-dir or BSFL_DATA_DIR")
    trying = [
        f"fashion-mnist: trying {one}" for one in ("data folder", "cache", "official address")
    ]
    assert (lines[::2], lines[1::2]) == (trying, [named, cached, official])


def test_a_server_that_cannot_be_reached(fashion, monkeypatch):
    with socket.socket() as busy:  # bound, and not listening
        busy.bind(("127.0.0.1", 0))
        entry, _ = fake_fashion(address=f"http://127.0.0.1:{busy.getsockname()[1]}/")
        monkeypatch.setitem(CATALOGUE.known, entry.name, entry)
        with pytest.raises(NoSource, match=f"official address: {entry.address} cannot be reached"):
            get_dataset("fashion-mnist")


def test_loading_downloads_nothing(fashion):
    with pytest.raises(NoSource, match="run: bsfl data get fashion-mnist"):
        load_dataset("fashion-mnist")


def test_the_environment_names_a_folder(tmp_path, fashion, monkeypatch):
    get_dataset("fashion-mnist", data_dir=tmp_path / "mine")
    assert where_is(fashion) is None
    monkeypatch.setenv("BSFL_DATA_DIR", str(tmp_path / "mine"))
    assert where_is(fashion) == ("BSFL_DATA_DIR", tmp_path / "mine")
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
    found = get_dataset("fashion-mnist", data_dir=tmp_path / "full", log=lines.append)
    assert (found.folder, lines[-1]) == (cache, "  could not keep a copy: no space left")


def test_an_unknown_name_is_named():
    with pytest.raises(InvalidInput, match="unknown data set 'cifar'; did you mean 'cifar10'"):
        load_dataset("cifar")


CODE = """
import sys
for name in ("jax", "pooch", "platformdirs", "requests"):
    sys.modules[name] = None
from bsfl.learning.datasets import load_dataset
data = load_dataset("fashion-mnist-small")
print(data.x_train.flags.writeable, data.x_train.shape, data.x_test.shape, {int((data.y_train == k).sum()) for k in range(10)})
"""


def test_embedded_data_needs_numpy_alone_and_is_balanced():
    run = [sys.executable, "-c", CODE]
    found = subprocess.run(run, capture_output=True, text=True, env=os.environ)
    assert found.stdout == "False (6000, 28, 28, 1) (1000, 28, 28, 1) {600}\n", found.stderr
    assert "2017 Zalando SE" in (EMBEDDED / "LICENSE-fashion-mnist").read_text("utf-8")
