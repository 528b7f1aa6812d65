"""The file in which a scheduler outlives its server."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from bsfl.errors import FileInUse, InvalidInput
from bsfl.scheduler import Scheduler

_LOG = logging.getLogger("flwr")


class Attempts:
    """Writes to a file; a disk that is full costs what was learned, not the training.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_failing = False

    def attempt(self, write: Callable[[], None]) -> None:
        """Write; say once that it fails, and once that it works again."""
        try:
            write()
        except (OSError, FileInUse) as error:
            if not self._is_failing:
                _LOG.warning("bsfl: %s cannot be written, training goes on: %s", self.path, error)
            self._is_failing = True
            return
        if self._is_failing:
            _LOG.warning("bsfl: %s is written again", self.path)
        self._is_failing = False


class StateFile:
    """Restores a scheduler, and saves it after every round.

    Attributes:
        path: The file; absolute from the start, whatever becomes of the working folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise InvalidInput(
                f"state_path must be a file in a folder that exists, got {str(self.path)!r}"
            )
        self._attempts = Attempts(self.path)

    def restored(self, scheduler: Scheduler) -> Scheduler:
        """Return what the file knows under the given settings; one that is not new stays."""
        if scheduler.t:
            return scheduler
        if len(scheduler.clients):
            raise InvalidInput(
                "a scheduler with a state_path must be new, as a file would replace it; register "
                "clients afterwards, with the scheduler of Selected"
            )
        if not self.path.exists():
            return scheduler
        restored = Scheduler.load(self.path, policy=scheduler.policy)
        restored.cohort_size = scheduler.cohort_size
        restored.abandon()
        _LOG.info("bsfl: %s goes on after round %d", self.path, restored.t)
        return restored

    def save(self, scheduler: Scheduler) -> None:
        """Write the scheduler; a failure costs a warning."""
        self._attempts.attempt(lambda: scheduler.save(self.path))
