"""Only regular files of a limited size are read."""

import os
import socket
from pathlib import Path

import pytest

from bsfl.persistence.regular_file import open_csv, open_regular


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
