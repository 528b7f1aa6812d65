"""Events as entries of a journal, and back. Numbers and ids survive exactly."""

import math
from dataclasses import asdict
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
from bsfl.policy import Selection
from bsfl.types import NO_CLIENTS, OUTCOMES, FloatArray, IntArray, RoundPlan, RoundReport
from bsfl.validation import natural, short

Entry = dict[str, Any]
N_WEIGHED, DECIMALS = 20, 4
"""How many of a cohort, the slowest first, are written with what they were weighed by, and how."""


def entry_of(event: Event, names: list[Any]) -> Entry:
    """Return an event with the caller's ids."""

    def ids(clients: IntArray) -> list[Any]:
        return [names[k] for k in clients.tolist()]

    match event:
        case RoundOpened():
            why = {} if event.selection is None else _why(event.selection, names)
            return {
                "kind": "opened",
                "round": event.round,
                "invited": ids(event.cohort),
                "n_invited": event.n_invited,
                "target_responses": event.target_responses,
                "n_available": 0 if event.context is None else len(event.context.available),
                "busy": ids(event.busy),
                "deadline_s": event.deadline_s,
                "is_timed": event.is_timed,
                "response_rate": event.response_rate,
                "now_s": event.now_s,
                **why,
            }
        case ResponsesReported():
            report = event.report
            return {
                "kind": "responses",
                "round": event.round,
                "clients": ids(report.clients),
                "outcome": [OUTCOMES[i] for i in report.outcome.tolist()],
                "latency_s": plain(report.latency_s),
                "loss": plain(report.loss),
                "samples": plain(report.samples),
                "is_late": event.is_late,
                "dropped": report.dropped,
                "staleness": report.staleness,
                "now_s": event.now_s,
            }
        case RoundClosed():
            return {
                "kind": "closed",
                "round": event.round,
                "aggregated": ids(event.aggregated),
                "is_discarded": event.is_discarded,
                "is_automatic": event.is_automatic,
                "measured_s": event.duration_s,
                "now_s": event.now_s,
            }
        case Join():
            new = names[len(names) - event.n_new :] if event.n_new else []
            return {"kind": "joined", "new": list(new), "clients": ids(event.clients)}
        case Describe():
            values = {name: rows.tolist() for name, rows in event.attributes.items()}
            return {"kind": "described", "clients": ids(event.clients), "attributes": _null(values)}
        case Leave():
            return {"kind": "left", "clients": ids(event.clients)}
        case SetAvailability():
            return {"kind": "availability", "on": ids(event.online), "off": ids(event.offline)}
        case Abandon():
            return {"kind": "abandoned", "clients": ids(event.clients)}
        case Forget():
            raise AssertionError("the ids of forgotten clients are written before they are gone")


def event_of(entry: Entry, ids: ClientIds) -> Event | None:
    """Return the event of an entry, and apply it to the ids; None: it is none of the engine."""

    def clients(name: str) -> IntArray:
        return np.array([ids.index_of(one) for one in entry[name]], dtype=np.int64)

    match entry["kind"]:
        case "opened":
            return RoundOpened(
                round=entry["round"],
                cohort=np.sort(clients("invited")),
                n_invited=entry["n_invited"],
                target_responses=entry["target_responses"],
                deadline_s=entry["deadline_s"],
                is_timed=entry["is_timed"],
                busy=clients("busy"),
                response_rate=entry["response_rate"],
                selection=None,
                context=None,
                now_s=entry["now_s"],
            )
        case "responses":
            report = RoundReport(
                round=entry["round"],
                staleness=entry["staleness"],
                clients=clients("clients"),
                outcome=np.array([OUTCOMES.index(x) for x in entry["outcome"]], dtype=np.int8),
                latency_s=numbers(entry["latency_s"]),
                loss=numbers(entry["loss"]),
                samples=numbers(entry["samples"]),
                invited=NO_CLIENTS,
                dropped=entry["dropped"],
            )
            return ResponsesReported(
                round=entry["round"],
                report=report,
                is_late=entry["is_late"],
                now_s=entry["now_s"],
            )
        case "closed":
            return RoundClosed(
                round=entry["round"],
                aggregated=np.sort(clients("aggregated")),
                is_discarded=entry["is_discarded"],
                is_automatic=entry["is_automatic"],
                duration_s=entry["measured_s"],
                now_s=entry["now_s"],
            )
        case "joined":
            known, new = clients("clients"), ids.clean(entry["new"])
            if twice := [one for one in new if one in ids]:
                raise InvalidInput(f"duplicate client id {short(twice[0])}")
            ids.append(new)
            return Join(n_new=len(new), clients=known)
        case "described":
            values = {name: numbers(rows) for name, rows in entry["attributes"].items()}
            return Describe(clients=clients("clients"), attributes=values)
        case "left":
            return Leave(clients=clients("clients"))
        case "availability":
            return SetAvailability(online=clients("on"), offline=clients("off"))
        case "abandoned":
            return Abandon(clients=clients("clients"))
        case "forgotten":
            kept = np.ones(len(ids), dtype=bool)
            kept[clients("clients")] = False
            ids.keep(kept)
            return Forget(kept=kept)
        case "renamed":
            ids.rename(entry["client"], entry["name"])
        case "features" | "settings":
            pass
        case kind:
            raise InvalidInput(f"unknown kind {short(kind)}")
    return None


def settings_entry(engine: Engine) -> Entry:
    """Return the settings of an engine that can be assigned."""
    plan = asdict(engine.plan)
    plan["max_wait_s"] = None if math.isinf(engine.plan.max_wait_s) else engine.plan.max_wait_s
    return {"kind": "settings", "plan": plan, "max_open_rounds": engine.max_open_rounds}


def settings_of(entry: Entry) -> tuple[RoundPlan, int]:
    """Return the plan and max_open_rounds of an entry."""
    plan = dict(entry["plan"])
    plan["max_wait_s"] = math.inf if plan["max_wait_s"] is None else plan["max_wait_s"]
    return RoundPlan(**plan), natural("max_open_rounds", entry["max_open_rounds"])


def plain(values: FloatArray) -> list[float | None]:
    """Return numbers, None where there is none."""
    return [None if x != x else x for x in values.tolist()]


def numbers(values: Any) -> FloatArray:
    """Return what `plain` gave, NaN where there is no number."""
    return np.array(
        [[math.nan if x is None else x for x in row] for row in values]
        if values and isinstance(values[0], list)
        else [math.nan if x is None else x for x in values],
        dtype=np.float64,
    )


def _null(values: dict[str, Any]) -> dict[str, Any]:
    """Return lists of numbers with None in place of NaN."""

    def cleaned(rows: Any) -> Any:
        return [cleaned(x) if isinstance(x, list) else None if x != x else x for x in rows]

    return {name: cleaned(rows) for name, rows in values.items()}


def _why(selection: Selection, names: list[Any]) -> Entry:
    """Return what the slowest of a cohort were weighed by, if any were."""
    if selection.unit == "value" or not len(selection.candidates):
        return {}
    at = np.flatnonzero(np.isin(selection.candidates, selection.clients, assume_unique=True))
    if not len(at):
        return {}
    slowest = at[np.argsort(selection.u[at], kind="stable")][:N_WEIGHED]
    slowest = slowest[~np.isnan(selection.u[slowest])]
    u = selection.u[slowest]
    expected = -u if selection.unit == "s" else u
    worth = selection.alpha / len(at) * selection.g[slowest]
    clients = [names[k] for k in selection.candidates[slowest].tolist()]
    why: Entry = {"unit": selection.unit, "clients": clients}
    why["expected"] = _rounded(expected)
    why["worth"] = _rounded(worth)
    return {"why": why}


def _rounded(values: FloatArray) -> list[float | None]:
    """Return numbers for a reader, None where one is not finite."""
    return [x if math.isfinite(x) else None for x in np.round(values, DECIMALS).tolist()]
