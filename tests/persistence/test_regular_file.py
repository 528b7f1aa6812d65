"""Only regular files of a limited size are read."""

import os
import socket
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bsfl.persistence.regular_file import open_csv, open_regular, read_arrays


def test_regular_files_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("\ufeffé\r\n".encode())
    with open_regular(path) as file:
        assert file.read() == path.read_bytes()
    with open_csv(path) as lines:
        assert list(lines) == ["é\r\n"]


def test_devices_pipes_sockets_and_large_files_are_not(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"12345")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("pipe", "link", "socket", "/dev/zero"):
            with pytest.raises(OSError, match="not a regular file|No such device"):
                open_regular(tmp_path / name)
    with pytest.raises(OSError, match="it has more than 4 bytes"):
        open_regular(tmp_path / "large", max_bytes=4)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="only Linux has it")
def test_a_file_without_a_size_is_empty_however_much_it_would_yield():
    with open_regular(Path("/proc/self/pagemap")) as file:
        assert file.read() == b""


def test_arrays_are_read_by_their_names(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(6).reshape(2, 3), who=["a", "b"], other=1.0)
    np.save(tmp_path / "a.npy", np.arange(3))
    found = read_arrays(tmp_path / "a.npz", ["x", "y", "who"])
    assert {name: array.tolist() for name, array in found.items()} == {
        "x": [[0, 1, 2], [3, 4, 5]],
        "who": ["a", "b"],
    }
    assert read_arrays(tmp_path / "a.npy", ["y", "x"])["y"].tolist() == [0, 1, 2]


def header(descr, shape):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header("<f8", (10**12,)), "array x may have .* and its header claims 8,000,000,000,000"),
        (header("<f8", (10**6,)), r"array x may have \d+ bytes, and its header claims 8,000,000"),
        (header("|O", (3,)), "array x must hold numbers or texts, got objects"),
        (header("|u1", (3,)), "EOF|Failed to read all data"),
        (header("(" * 9000, (3,)), "it is damaged"),
        (b"\x93NUMPY\x02\x00" + b"\xff" * 4, r"array x must be in version 1\.0"),
        (b"\x80\x04pickle", "magic string|not a zip file"),
    ],
)
def test_a_damaged_array_is_rejected_before_it_gets_memory(tmp_path, content, message):
    (tmp_path / "a.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    for name in ("a.npy", "a.npz"):
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match=message):
                read_arrays(tmp_path / name, ["x"])
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()
