"""From a name to a verified data set: every source in turn, with the reason when it fails."""

import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bsfl import validation
from bsfl._core.registry import is_reference
from bsfl.errors import BsflError, DataError, InvalidInput, NoSource
from bsfl.extras import optional_module
from bsfl.learning.datasets.catalogue import CATALOGUE, EMBEDDED, Entry
from bsfl.learning.datasets.dataset import PARTS, Dataset
from bsfl.learning.datasets.own import is_own, own_data, read_own
from bsfl.persistence.atomic import replace_file

ENVIRONMENT = "BSFL_DATA_DIR"
"""The variable that names the user's data folder."""
SYSTEM = "system package"
RETRIES, TIMEOUT_S = 2, 30.0  # further attempts, and seconds without a byte until one fails

Log = Callable[[str], None]
Source = tuple[str, Callable[[], Dataset]]
"""The name of a source for messages, and a function that returns the data set or raises."""


class Obtained(NamedTuple):
    """A verified data set, its source, and its folder; None: no copy could be kept."""

    dataset: Dataset
    source: str
    folder: Path | None


def load_dataset(name: str, *, data_dir: Path | None = None) -> Dataset:
    """Return a data set that is on this machine, without any download.

    Args:
        name: A name from `bsfl data list`, an .npz file, a folder of CSV files, or a function that
            returns arrays, by "mine.py:function" or the name of an entry point.
        data_dir: Folder to look into first for published data; None: that of BSFL_DATA_DIR.

    >>> load_dataset("fashion-mnist-small").x_train.shape
    (6000, 28, 28, 1)
    """
    if is_own(name) and not is_reference(name):
        return read_own(name)
    entry = CATALOGUE.find(name)
    if not isinstance(entry, Entry):
        made = CATALOGUE.call(name)
        return made if isinstance(made, Dataset) else own_data(name, made)
    sources = ((source, partial(entry.read, path)) for source, path in folders(entry, data_dir))
    return _first(entry, sources, advice=f"run: bsfl data get {name}" if entry.address else "")[1]


def get_dataset(
    name: str, *, data_dir: Path | None = None, log: Log = lambda line: None
) -> Obtained:
    """Return a published data set from the first source that has it; a download is kept.

    It is kept in the folder that the user named, else in the user's cache folder. `log` gets lines
    that say which source is tried, and why it failed.
    """
    entry = CATALOGUE.find(name)
    if not isinstance(entry, Entry):
        raise InvalidInput(f"{name} is no published data set; load_dataset reads custom data")
    local, advice = dict(folders(entry, data_dir)), ""
    sources: list[Source] = [(source, partial(entry.read, path)) for source, path in local.items()]
    if entry.address:
        sources.append(("official address", partial(download, entry)))
        advice = (
            f"to place it by hand, put {', '.join(entry.downloads)} of {entry.address} in a folder "
            f"and name the folder with --data-dir or {ENVIRONMENT}"
        )
    source, dataset = _first(entry, sources, advice=advice, log=log)
    if source in local:
        return Obtained(dataset, source, local[source])
    for folder in (path for name, path in local.items() if name != SYSTEM):
        try:
            write_npz(folder / entry.file_name, dataset)
            return Obtained(dataset, source, folder)
        except OSError as error:
            log(f"  could not keep a copy: {error}")
    return Obtained(dataset, source, None)


def where_is(entry: Entry, data_dir: Path | None = None) -> tuple[str, Path] | None:
    """Return the local source that has a data set and its folder, without reading the data."""
    for source, folder in folders(entry, data_dir):
        if found := entry.folder_in(folder):
            return source, found
    return None


def folders(entry: Entry, data_dir: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Yield the folders of this machine that may hold a data set, in the order they are tried."""
    if not entry.address:
        yield "part of bsfl", EMBEDDED
        return
    named = os.environ.get(ENVIRONMENT) if data_dir is None else data_dir
    if named:
        yield ENVIRONMENT if data_dir is None else "data folder", validation.folder(Path(named))
    yield "cache", cache_folder()
    yield from ((SYSTEM, path) for path in entry.system)


def cache_folder() -> Path:
    """Return the user's cache folder for data sets."""
    return Path(optional_module("platformdirs").user_cache_dir("bsfl", appauthor=False), "datasets")


def download(entry: Entry) -> Dataset:
    """Return the data set from the official files, which are checked before they are opened."""
    pooch, requests = optional_module("pooch"), optional_module("requests")
    pooch.get_logger().setLevel("WARNING")
    with tempfile.TemporaryDirectory(prefix="bsfl-", ignore_cleanup_errors=True) as folder:
        known = {name: f"md5:{digest}" for name, digest in entry.downloads.items()}
        files = pooch.create(folder, entry.address, registry=known, retry_if_failed=RETRIES)
        get = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT_S)
        try:
            for name in known:
                files.fetch(name, downloader=get)
        except requests.ConnectionError:
            raise DataError(f"{entry.address} cannot be reached") from None
        except ValueError as error:  # the checksum
            raise DataError(str(error)) from None
        return entry.read(Path(folder))


def write_npz(path: Path, dataset: Dataset) -> None:
    """Replace a file by the arrays of a data set, in one step."""
    content = io.BytesIO()
    np.savez(content, **{part: getattr(dataset, part) for part in PARTS})
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content.getbuffer())


def _first(
    entry: Entry, sources: Iterable[Source], *, advice: str, log: Log = lambda line: None
) -> tuple[str, Dataset]:
    """Return the first source that has the data set, and the data set.

    Raises NoSource with a line for each source, and the advice, when none has it.
    """
    reasons = []
    for source, read in sources:
        log(f"{entry.name}: trying {source}")
        try:
            return source, read()
        except (BsflError, OSError) as error:
            reason = "".join(c if c.isprintable() else " " for c in str(error))
            reasons.append(f"  {source}: {reason}")
            log(reasons[-1])
    lines = [f"{entry.name} could not be obtained from any source:", *reasons, advice]
    raise NoSource("\n".join(filter(None, lines)))
