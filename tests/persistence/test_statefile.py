"""State files: nothing broken is read, and a file has one writer."""

import hashlib
import json
import os
import struct

import numpy as np
import pytest

from bsfl.errors import (
    CorruptFile,
    NewerFormat,
    NotAStateFile,
    StateFileError,
    TruncatedFile,
)
from bsfl.persistence import statefile
from bsfl.persistence.statefile import header_of, read, stamp_of, write

needs_posix = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

HEADER = {"t": 3, "name": "ü"}
ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(5, dtype=np.int32)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.bsfl"


# --- the format


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.float64(2.5).reshape(()),
        np.arange(24.0).reshape(2, 3, 4).T,
        np.arange(3, dtype=">i8"),
        np.array([True, False]),
        np.ones((1,) * 32, dtype=np.uint8),
    ],
)
def test_arrays_come_back(path, array):
    write(path, HEADER, {"a": array})
    header, arrays = read(path)
    assert header == HEADER
    assert np.array_equal(arrays["a"], array)
    assert arrays["a"].shape == array.shape
    assert arrays["a"].dtype.isnative


def test_writing_replaces_and_leaves_nothing_behind(path):
    for t in range(3):
        stamp = write(path, {"t": t}, ARRAYS)
        assert stamp_of(path) == stamp
    assert [p.name for p in path.parent.iterdir()] == ["s.bsfl"]
    assert read(path)[0] == {"t": 2}


def test_a_truncated_file_at_every_length(path):
    write(path, HEADER, ARRAYS)
    content = path.read_bytes()
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(
            TruncatedFile, match=r"is truncated \(expected [\d,]+ bytes, found [\d,]+\)"
        ):
            read(path)
        assert "owner" not in header_of(path)
    path.write_bytes(b"")
    with pytest.raises(NotAStateFile, match="is not a saved scheduler"):
        read(path)


def test_every_changed_byte_is_noticed(path):
    write(path, HEADER, ARRAYS)
    content = path.read_bytes()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0x40
        path.write_bytes(changed)
        with pytest.raises(StateFileError, match="nothing was loaded"):
            read(path)
    path.write_bytes(content + b"x")
    with pytest.raises(CorruptFile, match="checksum differs"):
        read(path)


def test_a_newer_format_and_foreign_files(path, tmp_path):
    write(path, HEADER, ARRAYS)
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, len(statefile.MAGIC), statefile.FORMAT + 1)
    path.write_bytes(content)
    with pytest.raises(NewerFormat, match="has format 2, this bsfl reads up to 1; upgrade bsfl"):
        read(path)
    path.write_text(json.dumps({"hello": 1}))
    with pytest.raises(NotAStateFile, match="is not a saved scheduler"):
        read(path)
    with pytest.raises(NotAStateFile, match="is not a file"):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing.bsfl")


@needs_posix
@pytest.mark.parametrize("function", [stamp_of, header_of])
def test_a_pipe_holds_nothing_up(function, path):
    os.mkfifo(path)
    assert not function(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "a", "dtype": "<f8", "shape": [2**40]},
        {"name": "a", "dtype": "<f8", "shape": [-1]},
        {"name": "a", "dtype": "<f8", "shape": [1] * 65},
        {"name": "a", "dtype": "|O", "shape": [1]},
        {"name": "a", "shape": [1]},
    ],
)
def test_nothing_is_reserved_that_is_not_in_the_file(path, entry):
    write_by_hand(path, json.dumps({"arrays": [entry]}).encode())
    with pytest.raises(CorruptFile, match="its checksum is right"):
        read(path)


def write_by_hand(path, head, n_head=None):
    """Write a header with a right checksum."""
    body = struct.pack("<Q", len(head) if n_head is None else n_head) + head
    digest = hashlib.sha256(struct.pack("<I", 1) + body).digest()
    path.write_bytes(struct.pack("<12sIQ32s", statefile.MAGIC, 1, len(body), digest) + body)
