"""Everything bsfl raises on purpose.

BsflError
├── InvalidInput           a value breaks a stated rule (also a ValueError)
│   ├── UnknownClient      this client never joined, or was forgotten
│   └── NotSelected        a response of a client without a pending invitation
├── FileInUse              another scheduler writes this file; nothing was saved
├── NotEnoughClients       a federation has too few clients, and waiting did not help
├── WorkerDied             a process of an experiment was killed; finished runs are kept
├── StateFileError         a saved scheduler cannot be read; nothing was loaded
│   ├── NotAStateFile      the file is something else
│   ├── TruncatedFile      bytes are missing
│   ├── CorruptFile        bytes were changed
│   └── NewerFormat        written by a later release
├── DataError              a data set cannot be had; nothing was loaded
│   ├── UnreadableData     a file is missing, cut short, changed or something else
│   └── NoSource           every source failed; the message lists them all
└── MissingExtra           an optional dependency is not installed (also an ImportError)
"""


class BsflError(Exception):
    """Root of every exception this library raises on purpose."""


class InvalidInput(BsflError, ValueError):
    """A value breaks a stated rule; nothing was changed."""


class UnknownClient(InvalidInput):
    """This client never joined, or was forgotten."""


class NotSelected(InvalidInput):
    """A response came from a client that has no pending invitation."""


class FileInUse(BsflError):
    """Another scheduler writes this file; nothing was saved."""


class NotEnoughClients(BsflError):
    """A federation has too few clients, and waiting did not help."""


class WorkerDied(BsflError):
    """A process that runs a part of an experiment was killed; finished runs are kept."""


class StateFileError(BsflError):
    """A saved scheduler cannot be read; nothing was loaded."""


class NotAStateFile(StateFileError):
    """The file was not written by Scheduler.save."""


class TruncatedFile(StateFileError):
    """The file ends too early."""


class CorruptFile(StateFileError):
    """The file's checksum does not match its content."""


class NewerFormat(StateFileError):
    """The file was written by a later release of bsfl."""


class DataError(BsflError):
    """A data set cannot be had; nothing was loaded."""


class UnreadableData(DataError):
    """A file of a data set is missing, cut short, changed or something else."""


class NoSource(DataError):
    """Every source of a data set failed; the message lists them all."""


class MissingExtra(BsflError, ImportError):
    """An optional dependency is not installed; the message holds the pip line."""


def reason(error: Exception) -> str:
    """Return why a file cannot be read, without its path, which stands in the message already.

    >>> reason(FileNotFoundError(2, "No such file or directory", "log.csv"))
    'No such file or directory'
    """
    return getattr(error, "strerror", None) or str(error)
