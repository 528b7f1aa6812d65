"""Events as entries of a journal, and back. Numbers and ids survive exactly.

An entry has the fields of its event; dense indices become the caller's ids, NaN becomes null.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from bsfl._core.clients import ClientIds
from bsfl._core.engine import Engine
from bsfl._core.events import (
    Abandon,
    Describe,
    Event,
    Forget,
    Join,
    Leave,
    ResponsesReported,
    RoundClosed,
    RoundOpened,
    SetAvailability,
)
from bsfl.errors import InvalidInput
from bsfl.monitoring.journal import Entry, read_journal
from bsfl.monitoring.words import optional
from bsfl.policy import Selection
from bsfl.types import NO_CLIENTS, OUTCOMES, FloatArray, IntArray, RoundPlan, RoundReport
from bsfl.validation import in_short, natural, short

KINDS: dict[str, Any] = {
    "opened": RoundOpened,
    "responses": ResponsesReported,
    "closed": RoundClosed,
    "joined": Join,
    "described": Describe,
    "left": Leave,
    "availability": SetAvailability,
    "abandoned": Abandon,
    "forgotten": Forget,
}
"""Events by the kind of their entry; entries of other kinds change no engine."""
KEYS = {"cohort": "invited", "duration_s": "measured_s", "online": "on", "offline": "off"}
"""Fields whose key in an entry differs."""
CLIENTS = {"cohort", "busy", "clients", "aggregated", "online", "offline"}
NUMBERS = {"latency_s", "loss", "samples"}
LEFT_OUT = {"selection", "context", "report", "invited", "n_new", "kept"}
"""Fields that are not written, or in another form."""
N_WEIGHED, DECIMALS = 20, 4
"""How many of a cohort, the slowest first, are written with what they were weighed by, and how."""


def entry_of(event: Event, names: list[Any]) -> Entry:
    """Return an event with the caller's ids; `names` are those before clients are forgotten."""
    kind = next(kind for kind, one in KINDS.items() if type(event) is one)
    entry = {"kind": kind, **_encoded(event, names)}
    match event:
        case RoundOpened():
            entry["n_available"] = 0 if event.context is None else len(event.context.available)
            entry |= _why(event.selection, names) | _arm(event.selection)
        case ResponsesReported():
            entry |= _encoded(event.report, names)
        case Join():
            entry["new"] = names[len(names) - event.n_new :]
        case Forget():
            entry["clients"] = [names[k] for k in np.flatnonzero(~event.kept).tolist()]
    return entry


def event_of(entry: Entry, ids: ClientIds) -> Event | None:
    """Return the event of an entry, and apply it to the ids; None: it is none of the engine."""
    kind = entry["kind"]
    others: dict[str, Any] = {}
    match kind:
        case "opened":
            others = {"selection": None, "context": None}
        case "responses":
            others["report"] = RoundReport(**_decoded(RoundReport, entry, ids), invited=NO_CLIENTS)
        case "joined":
            known, new = _decoded(Join, entry, ids), ids.clean(entry["new"])
            if twice := [one for one in new if one in ids]:
                raise InvalidInput(f"duplicate client id {short(twice[0])}")
            ids.append(new)
            return Join(n_new=len(new), **known)
        case "forgotten":
            kept = np.ones(len(ids), dtype=bool)
            kept[_indices(entry["clients"], ids)] = False
            ids.keep(kept)
            return Forget(kept=kept)
        case "renamed":
            ids.rename(entry["client"], entry["name"])
            return None
        case "features" | "settings":
            return None
    if kind not in KINDS:
        raise InvalidInput(f"unknown kind {short(kind)}")
    event: Event = KINDS[kind](**_decoded(KINDS[kind], entry, ids), **others)
    return event


def _encoded(event: Any, names: list[Any]) -> Entry:
    """Return the fields of an event, or of its report, as plain data."""
    found = {}
    for name in (one.name for one in fields(event) if one.name not in LEFT_OUT):
        value = getattr(event, name)
        if name in CLIENTS:
            value = [names[k] for k in value.tolist()]
        elif name in NUMBERS:
            value = optional(value)
        elif name == "outcome":
            value = [OUTCOMES[i] for i in value.tolist()]
        elif name == "attributes":
            value = {attribute: optional(rows) for attribute, rows in value.items()}
        found[KEYS.get(name, name)] = value
    return found


def _decoded(event: Any, entry: Entry, ids: ClientIds) -> dict[str, Any]:
    """Return the fields of a type of event, or of a report, that `_encoded` has written."""
    found = {}
    for name in (one.name for one in fields(event) if one.name not in LEFT_OUT):
        value = entry[KEYS.get(name, name)]
        if name in CLIENTS:
            value = _indices(value, ids)
        elif name in NUMBERS:
            value = _numbers(value)
        elif name == "outcome":
            value = np.array([OUTCOMES.index(word) for word in value], dtype=np.int8)
        elif name == "attributes":
            value = {attribute: _numbers(rows) for attribute, rows in value.items()}
        found[name] = value
    return found


def _indices(clients: list[Any], ids: ClientIds) -> IntArray:
    return np.array([ids.index_of(one) for one in clients], dtype=np.int64)


def _numbers(values: list[Any]) -> FloatArray:
    """Return numbers, NaN for None."""
    return np.array(values, dtype=np.float64)


def _why(selection: Selection | None, names: list[Any]) -> Entry:
    """Return what the slowest of a cohort were weighed by, if any were."""
    if selection is None or selection.unit == "value":
        return {}
    at = np.flatnonzero(np.isin(selection.candidates, selection.clients, assume_unique=True))
    slowest = at[np.argsort(selection.u[at], kind="stable")][:N_WEIGHED]
    slowest = slowest[~np.isnan(selection.u[slowest])]
    if not len(slowest):
        return {}
    u, g = selection.u[slowest], selection.g[slowest]
    why = {
        "unit": selection.unit,
        "clients": [names[k] for k in selection.candidates[slowest].tolist()],
        "expected": _rounded(-u if selection.unit == "s" else u),
        "worth": _rounded(selection.alpha / len(at) * g),
    }
    return {"why": why}


def _arm(selection: Selection | None) -> Entry:
    """Return the policy that selected, where several alternate."""
    return {} if selection is None or selection.arm is None else {"arm": asdict(selection.arm)}


def _rounded(values: FloatArray) -> list[float | None]:
    """Return numbers for a reader, None where one is not finite."""
    return [x if math.isfinite(x) else None for x in np.round(values, DECIMALS).tolist()]


# --- settings ------------------------------------------------------------------------------------


def settings_entry(engine: Engine) -> Entry:
    """Return the settings of an engine that can be assigned."""
    plan, n = asdict(engine.plan), engine.max_open_rounds
    return {"kind": "settings", "plan": plan, "max_open_rounds": n}


def settings_of(entry: Entry) -> tuple[RoundPlan, int]:
    """Return the plan and max_open_rounds of an entry."""
    return RoundPlan(**entry["plan"]), natural("max_open_rounds", entry["max_open_rounds"])


# --- replay --------------------------------------------------------------------------------------


def events_after(
    journal: str | os.PathLike[str], seq: int, ids: ClientIds
) -> Iterator[tuple[Entry, Event | None]]:
    """Yield the entries after a sequence number with their events, and apply them to the ids.

    After a restart from an older state file sequence numbers start from that file again: then the
    later entries count.
    """
    entries: list[Entry] = []
    for entry in read_journal(journal):
        if "seq" in entry:
            while entries and entries[-1]["seq"] >= entry["seq"]:
                entries.pop()
            entries.append(entry)
    for entry in entries:
        if entry["seq"] <= seq:
            continue
        if (last := entry["seq"] - 1) > seq:
            missing = f"event {last}" if last == seq + 1 else f"events {seq + 1} to {last}"
            raise InvalidInput(
                f"{journal} lacks {missing}, so it cannot be replayed; a journal holds every event "
                "if it is written from the state file on with Journal(path, availability=True)"
            )
        with replaying(journal, entry):
            event = event_of(entry, ids)
        yield entry, event
        seq += 1


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
