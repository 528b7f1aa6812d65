"""The official files are decoded exactly, and damaged ones are rejected with little memory."""

import gzip
import os
import tracemalloc

import numpy as np
import pytest
from fake_data import fake_cifar, fake_fashion, write_cifar, write_cifar_archive, write_idx

from bsfl.errors import UnreadableData
from bsfl.learning.datasets.dataset import PARTS

IMAGES = "train-images-idx3-ubyte.gz"
MAX_MEMORY = 5_000_000
HEADER = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (12, 28, 28))


def same(dataset, arrays):
    return all(np.array_equal(getattr(dataset, part), arrays[part]) for part in PARTS)


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("place", ["", "fashion-mnist", "FashionMNIST/raw"])
def test_idx_files(tmp_path, compress, place):
    entry, arrays = fake_fashion()
    write_idx(tmp_path / place, arrays, compress=compress)
    assert same(entry.read(tmp_path), arrays)


@pytest.mark.parametrize("place", ["", "cifar10", "cifar-10-batches-bin"])
def test_cifar_files(tmp_path, place):
    entry, arrays = fake_cifar()
    write_cifar(tmp_path / place, arrays)
    assert same(entry.read(tmp_path), arrays)


def test_the_cifar_archive_is_opened_only_if_it_is_the_published_one(tmp_path, monkeypatch):
    entry, arrays = fake_cifar()
    md5 = write_cifar_archive(tmp_path, arrays)
    with pytest.raises(UnreadableData, match=f"not the published archive .* {md5} found"):
        entry.read(tmp_path)
    monkeypatch.setattr("bsfl.learning.datasets.official_files.CIFAR_MD5", md5)
    assert same(entry.read(tmp_path), arrays)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(HEADER + bytes(100_000_000), 1, mtime=0), "must hold 9,424 bytes, got more"),
        (HEADER + bytes(9_407), "must hold 9,424 bytes, got 9,423"),
        (bytes([0, 0, 8, 3]) + bytes([255] * 12) + bytes(9_408), r"with axes \[12, 28, 28\]"),
        (b"<html>please log in", "must hold 9,424 bytes, got 19"),
        (gzip.compress(HEADER, mtime=0)[:-9], "cannot be decompressed"),
        (HEADER + bytes(9_408), "x_train is not the published array"),
    ],
)
def test_a_damaged_file_is_rejected(tmp_path, content, message):
    entry, arrays = fake_fashion()
    write_idx(tmp_path, arrays)
    (tmp_path / IMAGES).write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableData, match=message):
            entry.read(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY
    finally:
        tracemalloc.stop()


def test_a_missing_file_is_named(tmp_path):
    entry, arrays = fake_cifar()
    write_cifar(tmp_path, arrays)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_3\.bin"):
        entry.read(tmp_path)


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_a_file_without_an_end_is_not_read(tmp_path, kind):
    entry, arrays = fake_cifar()
    write_cifar(tmp_path, arrays)
    path = tmp_path / "test_batch.bin"
    path.unlink()
    path.symlink_to("/dev/zero") if kind == "device" else os.mkfifo(path)
    with pytest.raises(OSError, match="it is not a regular file"):
        entry.read(tmp_path)


@pytest.mark.parametrize("part", PARTS)
def test_the_kept_file_must_hold_the_published_arrays(tmp_path, part):
    entry, arrays = fake_fashion()
    turned = {name: np.asfortranarray(array) for name, array in arrays.items()}
    np.savez(tmp_path / entry.file_name, **turned)
    assert same(entry.read(tmp_path), arrays)
    arrays[part].flat[-1] ^= 1
    np.savez(tmp_path / entry.file_name, **arrays)
    with pytest.raises(UnreadableData, match=f"{part} is not the published array"):
        entry.read(tmp_path)
