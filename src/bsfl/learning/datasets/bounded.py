"""Files of data sets, which others made: decompressed and unpacked no further than they may go."""

import gzip
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bsfl.errors import UnreadableData

SPARE_BYTES = 16_000_000
"""Bytes that an archive may unpack to beyond the files that are wanted."""
MAX_MEMBERS = 1_000
"""Files and folders in an archive."""
MAX_EMPTY = 10
"""How often tarfile may read on after the end; once or twice is usual."""
_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if it is gzip, whatever its name: some servers unpack it."""
    with path.open("rb") as raw:
        is_gzip = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        raw.seek(0)
        try:
            yield gzip.GzipFile(fileobj=raw) if is_gzip else raw  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableData(f"{path} cannot be decompressed: {error}") from None


def read_files(folder: Path, most: Mapping[str, int]) -> dict[str, bytes]:
    """Return the content of files by name; `most` says how many bytes each may have."""
    contents = {}
    for name, n_bytes in most.items():
        path = folder / name
        if not path.is_file():
            raise UnreadableData(f"{folder} has no {name}")
        with path.open("rb") as file:
            contents[name] = _read(file, n_bytes, str(path))
    return contents


def read_members(archive: Path, folder: str, most: Mapping[str, int]) -> dict[str, bytes]:
    """Return the content of files in one folder of an archive; nothing is unpacked to disk."""
    wanted = {f"{folder}/{name}": name for name in most}
    contents: dict[str, bytes] = {}
    try:
        with opened(archive) as file:
            unpacked = _Unpacked(file, sum(most.values()) + SPARE_BYTES, archive)
            with tarfile.open(fileobj=unpacked, mode="r|") as tar:  # type: ignore[call-overload]
                for i, member in enumerate(tar):
                    if i >= MAX_MEMBERS:
                        raise UnreadableData(f"{archive} has more than {MAX_MEMBERS:,} members")
                    name = wanted.get(member.name.removeprefix("./"))
                    if name and member.isreg() and not member.issparse():
                        content = tar.extractfile(member)
                        assert content  # it is a file
                        contents[name] = _read(content, most[name], f"{archive}: {name}")
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:  # foreign numbers, too
        raise UnreadableData(f"{archive} cannot be unpacked: {error}") from None
    for path, name in wanted.items():
        if name not in contents:
            raise UnreadableData(f"{archive} has no {path}")
    return contents


def _read(file: IO[bytes], most: int, place: str) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise UnreadableData(f"{place} may have {most:,} bytes, and has more")
    return content


class _Unpacked:
    """What comes out of an archive, up to a limit; for tarfile, which reads on and on."""

    def __init__(self, file: IO[bytes], most: int, archive: Path) -> None:
        self.file, self.left, self.most, self.archive = file, most, most, archive
        self.n_empty = 0

    def read(self, n_bytes: int) -> bytes:
        content = self.file.read(min(n_bytes, self.left + 1))
        self.left -= len(content)
        if self.left < 0:
            raise UnreadableData(f"{self.archive} unpacks to more than {self.most:,} bytes")
        self.n_empty += not content
        if self.n_empty > MAX_EMPTY:  # tarfile looks for the end of a member that says 4 GB
            raise UnreadableData(f"{self.archive} ends within a member")
        return content
