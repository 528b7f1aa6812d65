"""The files that a scheduler is saved to, at once or while the rounds go on."""

from pathlib import Path

from bsfl.saving import statefile
from bsfl.saving.background import BackgroundWriter
from bsfl.saving.snapshot import Snapshot
from bsfl.scheduling.clients import id_arrays


class Saves:
    """Writes snapshots; of each file it knows what it held when it was last ours."""

    def __init__(self) -> None:
        self._writer = BackgroundWriter()
        self._stamps: dict[Path, bytes] = {}
        self._spare: statefile.Arrays = {}

    def loaded(self, path: Path, stamp: bytes) -> None:
        """Remember that the scheduler goes on from a file."""
        self._stamps[path] = stamp

    def save(self, snapshot: Snapshot, path: Path, *, wait: bool) -> None:
        """Write a snapshot, or copy it and have it written soon."""
        header, arrays = snapshot.contents()
        ids, n_ids = snapshot.clients.ids, len(snapshot.clients)

        def write(arrays: statefile.Arrays) -> None:
            named = {f"clients/{name}": a for name, a in id_arrays(ids[:n_ids]).items()}
            stamp = self._stamps.get(path)
            self._stamps[path] = statefile.write(path, header, arrays | named, stamp)

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
