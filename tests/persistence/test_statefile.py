"""State files: arrays come back, and nothing broken is read."""

import json
import os
import struct

import numpy as np
import pytest

from bsfl.errors import CorruptFile, NewerFormat, NotAStateFile, StateFileError, TruncatedFile
from bsfl.persistence import statefile
from bsfl.persistence.statefile import header_of, read, stamp_of, write
from saved_state import finalised

needs_posix = pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")

HEADER = {"t": 3, "name": "ü"}
ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(5, dtype=np.int32)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.bsfl"


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
    write(path, HEADER, {"first": array, **ARRAYS})
    header, arrays = read(path)
    first = arrays.pop("first")
    assert header == HEADER
    assert np.array_equal(first, array)
    assert first.shape == array.shape
    assert first.dtype.isnative
    assert {name: a.tolist() for name, a in arrays.items()} == {
        k: a.tolist() for k, a in ARRAYS.items()
    }


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
        with pytest.raises(TruncatedFile, match=r"expected [\d,]+ bytes, found [\d,]+\)"):
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


def test_a_newer_format_and_other_files(path, tmp_path):
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
        {"name": "a", "dtype": "<f8", "shape": [2]},
        {"name": "a", "dtype": "<f8", "shape": [-1]},
        {"name": "a", "dtype": "<f8", "shape": [1] * 65},
        {"name": "a", "dtype": "|O", "shape": [1]},
        {"name": "a", "shape": [1]},
    ],
)
def test_nothing_is_reserved_that_is_not_in_the_file(path, entry):
    head = json.dumps({"arrays": [entry]}).encode()
    path.write_bytes(finalised(struct.pack("<Q", len(head)) + head + bytes(15)))
    with pytest.raises(CorruptFile, match="its checksum is right"):
        read(path)
