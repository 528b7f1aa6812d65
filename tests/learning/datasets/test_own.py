"""Data of a user's own: .npz files, folders of CSV files, and what is wrong with them."""

import os

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.learning.datasets import load_dataset

X, Y = np.arange(40.0).reshape(20, 2), np.arange(20) % 3
OWNER = np.array([f"phone-{k % 4}" for k in range(20)])


def saved(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_an_npz_says_whose_samples_are_and_a_fifth_of_each_is_for_the_test(tmp_path):
    data = load_dataset(saved(tmp_path / "a.npz", x=X, y=Y, client=OWNER))
    assert data.ids == ("phone-0", "phone-1", "phone-2", "phone-3")
    assert np.bincount(data.client).tolist() == [4] * 4, "of five each"
    assert (len(data.x_train), len(data.x_test)) == (16, 4)
    assert data.labels == ("0", "1", "2")
    rows = np.concatenate([data.x_train, data.x_test])
    assert sorted(rows[:, 0]) == X[:, 0].tolist(), "all of it, once"
    again = load_dataset(str(tmp_path / "a.npz"))
    assert np.array_equal(again.x_test, data.x_test)
    for k, name in enumerate(data.ids):
        mine = data.x_train[data.client == k][:, 0]
        assert set(mine) <= set(X[name == OWNER][:, 0])


def test_test_data_texts_and_numbers(tmp_path):
    words = np.array(["cat", "dog"])[Y % 2]
    data = load_dataset(saved(tmp_path / "a.npz", x=X, y=words, x_test=X[:3], y_test=words[:3]))
    assert (data.labels, len(data.x_train)) == (("cat", "dog"), 20)
    assert data.y_train.tolist() == (Y % 2).tolist()
    plain = load_dataset(saved(tmp_path / "b.npz", x=X, y=Y + 0.5))
    assert (plain.n_labels, plain.client) == (None, None)


def test_a_folder_of_csv_files_is_one_client_a_file(tmp_path):
    for k in range(3):
        lines = [f"{k},{i},{'up' if i % 2 else 'down'}" for i in range(5)]
        (tmp_path / f"site-{k}.csv").write_text("\n".join(["a,b,y", *lines]))
    data = load_dataset(f"{tmp_path}")
    assert data.ids == ("site-0", "site-1", "site-2")
    assert data.labels == ("down", "up")
    assert np.array_equal(data.x_train[:, 0], data.client), "column a is the number of the site"
    (tmp_path / "test.csv").write_text("a,b,y\n9,9,up\n")
    data = load_dataset(f"{tmp_path}/")
    assert (len(data.x_train), data.x_test.tolist()) == (15, [[9.0, 9.0]])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": X, "y": Y}, "no array 'x'; got \\['y'\\]"),
        ({"x": X, "y": Y[:3]}, "y must have one target for each of the 20 inputs"),
        ({"x": X[:, 0], "y": Y}, r"x must be numbers, \[n, features\] or"),
        ({"x": X, "y": Y, "x_test": X}, "x_test and y_test belong together"),
        ({"x": X, "y": Y, "client": [1]}, "client must name the client of each of the 20 samples"),
        ({"x": X * np.nan, "y": Y}, "x must be finite numbers"),
        ({"x": X, "y": Y, "x_test": X[:, :1], "y_test": Y}, "x and x_test must hold inputs of one"),
        ({"x": X, "y": Y, "client": np.arange(20)}, "no client has 5 samples, so none is left"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, arrays, message):
    with pytest.raises(InvalidInput, match=message):
        load_dataset(saved(tmp_path / "a.npz", **arrays))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "line 1: must be names of columns, one of them y, got 'a,b'"),
        ("a,y\n1,2\nx,3\n", "line 3: could not convert string to float: 'x'"),
        ("a,y\n1,2,3\n", "line 2: expected 2 values, got 3"),
        ("a,y\n", "there is no sample in the file"),
    ],
)
def test_csv_files_that_do_not_fit_are_named(tmp_path, content, message):
    (tmp_path / "one.csv").write_text(content)
    with pytest.raises(InvalidInput, match=message):
        load_dataset(f"{tmp_path}")


def test_a_file_that_is_no_data_is_named(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    for name in (f"{tmp_path}/a.npz", "missing.npz"):
        with pytest.raises(InvalidInput, match=f"{name} cannot be read as an .npz file"):
            load_dataset(name)


def test_devices_and_pipes_are_refused_before_they_are_read(tmp_path):
    """They have no end: `dataset = "/dev/zero"` took all memory there is."""
    os.mkfifo(tmp_path / "a.npz")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "site.csv").symlink_to("/dev/zero")
    for name in ("/dev/zero", f"{tmp_path}/a.npz", f"{tmp_path}/folder"):
        with pytest.raises(InvalidInput, match="it is not a regular file"):
            load_dataset(name)
