"""Reads the events of a journal again, in the order in which they happened."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from bsfl._core.clients import ClientIds
from bsfl._core.events import Event
from bsfl.errors import InvalidInput
from bsfl.monitoring.journal import Entry, read_journal
from bsfl.monitoring.stream import event_of
from bsfl.validation import in_short


def events_after(
    journal: str | os.PathLike[str], seq: int, ids: ClientIds
) -> Iterator[tuple[Entry, Event | None]]:
    """Yield the entries after a sequence number with their events, and apply them to the ids.

    After a restart from an older state file sequence numbers start from that file again: then the
    later entries count.
    """
    entries: list[Entry] = []
    for entry in read_journal(journal):
        if "seq" not in entry:
            continue
        while entries and entries[-1]["seq"] >= entry["seq"]:
            entries.pop()
        entries.append(entry)
    expected = seq + 1
    for entry in entries:
        if entry["seq"] <= seq:
            continue
        if (last := entry["seq"] - 1) >= expected:
            missing = f"event {last}" if last == expected else f"events {expected} to {last}"
            raise InvalidInput(
                f"{journal} lacks {missing}, so it cannot be replayed; a journal holds every event "
                "if it is written from the state file on with Journal(path, availability=True)"
            )
        with replaying(journal, entry):
            event = event_of(entry, ids)
        yield entry, event
        expected += 1


@contextmanager
def replaying(journal: str | os.PathLike[str], entry: Entry) -> Iterator[None]:
    """Blame the entry for everything that goes wrong within."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"event {entry['seq']} of {journal} cannot be replayed from this state file "
            f"({in_short(error)})"
        ) from error
