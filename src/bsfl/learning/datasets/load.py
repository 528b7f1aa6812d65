"""From a name to a verified data set: every source in its turn, with the reason when it fails."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bsfl._core.registry import is_reference
from bsfl.errors import DataError, InvalidInput, MissingExtra, NoSource, UnreadableData
from bsfl.learning.datasets.catalogue import CATALOGUE, EMBEDDED, Entry
from bsfl.learning.datasets.dataset import Dataset, write_npz
from bsfl.learning.datasets.downloads import Watcher
from bsfl.learning.datasets.own import OwnData, is_own, own_data, read_own
from bsfl.learning.datasets.sources import (
    ENVIRONMENT,
    Source,
    cache_folder,
    from_folder,
    named_folder,
)

MAX_REASON = 500
"""Characters of a reason why a source failed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Obtained:
    """A data set and where it is.

    Attributes:
        dataset: Verified.
        source: The name of the source it came from.
        folder: Where it will be found the next time; None: nowhere, it could not be kept.
    """

    dataset: Dataset
    source: str
    folder: Path | None


def load_any(name: str) -> Dataset | OwnData:
    """Return a data set of the catalogue, or of your own; see `own`.

    Args:
        name: As for load_dataset, an .npz file, a folder of CSV files, or a function that returns
            arrays, by "mine.py:function" or the name of an entry point.
    """
    if is_own(name) and not is_reference(name):
        return read_own(name)
    if isinstance(CATALOGUE.find(name), Entry):
        return load_dataset(name)
    made = CATALOGUE.call(name)
    return made if isinstance(made, Dataset | OwnData) else own_data(name, made)


def load_dataset(name: str, *, data_dir: Path | None = None) -> Dataset:
    """Return a published data set that is on this machine; never goes to the network.

    Args:
        name: From CATALOGUE. fashion-mnist-small is part of bsfl and always there.
        data_dir: Where to look first; otherwise the folder in BSFL_DATA_DIR.

    >>> load_dataset("fashion-mnist-small").x_train.shape
    (6000, 28, 28, 1)
    """
    entry = _published(name)
    advice = f"run: bsfl data get {entry.name}" if entry.remote else ""
    return obtain(entry, local_sources(entry, data_dir), advice=advice).dataset


def get_dataset(
    name: str, *, data_dir: Path | None = None, watcher: Watcher | None = None
) -> Obtained:
    """Return a data set from the first source that has it, and keep it for the next time.

    It is kept in the folder that the user named, else in the user's cache folder.
    """
    entry, watcher = _published(name), watcher or Watcher()
    sources = (*local_sources(entry, data_dir), *entry.remote)
    by_hand = (
        f"to place it by hand, put {entry.by_hand} in a folder and name it with "
        f"--data-dir or {ENVIRONMENT}"
    )
    obtained = obtain(entry, sources, watcher, advice=by_hand if entry.remote else "")
    if obtained.folder is not None:
        return obtained
    for find in (partial(named_folder, data_dir), cache_folder):
        try:
            if folder := find():
                write_npz(folder / entry.file_name, obtained.dataset)
                return replace(obtained, folder=folder)
        except (MissingExtra, OSError) as error:
            watcher.say(f"  could not keep a copy: {error}")
    return obtained


def _published(name: str) -> Entry:
    entry = CATALOGUE.find(name)
    if not isinstance(entry, Entry):
        raise InvalidInput(f"{name} is no published data set; load_any reads one of your own")
    return entry


def local_sources(entry: Entry, data_dir: Path | None = None) -> tuple[Source, ...]:
    """Return the folders of this machine that may hold a data set, in the order they are tried."""
    if entry.embedded:
        return (from_folder("part of bsfl", EMBEDDED),)
    folder = named_folder(data_dir)
    named = "data folder" if data_dir is not None else ENVIRONMENT
    return (
        *([from_folder(named, folder)] if folder else []),
        from_folder("cache", cache_folder),
        *(from_folder("system package", path) for path in entry.system),
    )


def where_is(entry: Entry, data_dir: Path | None = None) -> tuple[str, Path] | None:
    """Return the local source that has a data set and the folder; a look, without reading it."""
    for source in local_sources(entry, data_dir):
        try:
            found = entry.layout_in(source.provide(Path(), Watcher()))
        except (DataError, MissingExtra, OSError):
            continue
        if found:
            return source.name, found[0]
    return None


def obtain(
    entry: Entry, sources: Sequence[Source], watcher: Watcher | None = None, *, advice: str = ""
) -> Obtained:
    """Return the data set from the first source that has all of it, verified.

    Raises NoSource with one line per source, and the advice, when none has.
    """
    watcher = watcher or Watcher()
    reasons = []
    for source in sources:
        watcher.say(f"{entry.name}: trying {source.name}")
        try:
            with tempfile.TemporaryDirectory(prefix="bsfl-", ignore_cleanup_errors=True) as work:
                folder = source.provide(Path(work), watcher)
                dataset = _read(entry, folder)
        except (DataError, MissingExtra, OSError) as error:
            reasons.append(f"{source.name}: {_one_line(str(error))}")
            watcher.say(f"  {reasons[-1]}")
        else:
            kept = folder if source.kept else None
            return Obtained(dataset=dataset, source=source.name, folder=kept)
    listing = "\n".join(f"  {reason}" for reason in reasons)
    raise NoSource(f"{entry.name} could not be had from any source:\n{listing}\n{advice}".strip())


def _one_line(reason: str) -> str:
    """Return a reason that may hold the words of a server or a program, fit for a terminal."""
    words = " ".join(reason.split())
    return "".join(c if c.isprintable() else "?" for c in words[:MAX_REASON])


def _read(entry: Entry, folder: Path) -> Dataset:
    found = entry.layout_in(folder)
    if found is None:
        if entry.refuse:
            entry.refuse(folder)
        raise UnreadableData(f"{folder} does not hold {entry.name}")
    where, layout = found
    try:
        return entry.published.verified(layout.read(where, entry.published))
    except UnreadableData as error:
        place = "" if str(where) in str(error) else f"{where}: "
        raise UnreadableData(f"{place}{error}") from None
