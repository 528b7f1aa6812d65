"""The state files of one scheduler, written at once or while the rounds go on."""

from pathlib import Path
from typing import Any

from bsfl._core.clients import id_arrays
from bsfl.persistence import statefile
from bsfl.persistence.background import BackgroundWriter
from bsfl.persistence.statefile import Arrays


class StateFiles:
    """Writes state files; of each it knows the stamp that it had when it was last its own."""

    def __init__(self) -> None:
        self._writer = BackgroundWriter()
        self._stamps: dict[Path, bytes] = {}
        self._owner = statefile.Owner()
        self._spare: Arrays = {}

    def loaded(self, path: Path, stamp: bytes) -> None:
        """Remember that the scheduler continues from a file."""
        self._stamps[path] = stamp

    def save(
        self,
        path: Path,
        header: dict[str, Any],
        arrays: Arrays,
        names: list[Any],
        n_names: int,
        *,
        wait: bool,
    ) -> None:
        """Write a state file, or copy the arrays and write it in the background.

        The first `n_names` of the ids are written; the list only ever grows at its end.
        """

        def write(arrays: Arrays) -> None:
            named = {f"ids/{name}": a for name, a in id_arrays(names[:n_names]).items()}
            stamp = self._stamps.get(path)
            self._stamps[path] = statefile.write(
                path, header, arrays | named, stamp=stamp, owner=self._owner
            )

        if wait:
            self._writer.join()
            write(arrays)
            self.wait()
            return
        copied = statefile.copies(arrays, self._spare)

        def write_copy() -> None:
            write(copied)
            self._spare = copied  # the next copy takes their place in memory

        self._writer.put(path, write_copy)

    def wait(self) -> None:
        """Return when everything is written, or raise why it was not."""
        self._writer.wait()
