"""Compiled programs that numba keeps on disk, and what to do when the disk damaged them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def recovering(program: Any) -> Callable[..., Any]:
    """Return a program of numba that is compiled again if what is on disk of it cannot be read.

    numba unpickles its cache when a program is first called, before anything of it runs, and stops
    with whatever a damaged pickle raises. What is wrong for another reason is so the second time.
    """

    def call(*args: Any) -> Any:
        try:
            return program(*args)
        except Exception:  # there is no list of what a damaged pickle may raise
            forget(Path(program.stats.cache_path))
            return program(*args)

    return call


def forget(folder: Path) -> None:
    """Delete the programs in a folder of numba's cache; it makes them again."""
    for pattern in ("*.nbi", "*.nbc"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
