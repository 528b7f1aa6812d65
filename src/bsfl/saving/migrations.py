"""What a file of an earlier bsfl would hold today.

The schema is the number of what a scheduler's file holds: names in its header and of its arrays.
Whoever changes those raises SCHEMA and adds the step from the number before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.errors import NewerFormat
from bsfl.saving.statefile import Arrays

SCHEMA = 6
Header = dict[str, Any]


def migrated(header: Header, arrays: Arrays, path: object) -> tuple[Header, Arrays]:
    """Return the content of a file as this bsfl would have written it."""
    schema = checks.natural("schema", header.get("schema", 1))  # 0.1.0 did not say
    if schema > SCHEMA:
        raise NewerFormat(
            f"{path} has schema {schema}, this bsfl reads up to {SCHEMA}; "
            "upgrade bsfl to open it; nothing was loaded"
        )
    for step in range(schema, SCHEMA):
        header, arrays = STEPS[step](header, arrays)
    return header, arrays


def flags_to_parts(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Schema 1 to 2: what were flags of BSFL are parts with settings and states of their own."""
    if header["policy"] != "bsfl":
        return header, arrays
    saved = header["settings"]
    flags: Header = {"speeds": "means", "discount": None, "window": None}
    flags |= header.get("remembers", {})
    flags |= saved or {}
    memory: Header = {"kind": "lasting"}
    if flags["discount"] is not None:
        memory = {"kind": "discounted", "gamma": flags["discount"]}
    elif flags["window"] is not None:
        memory = {"kind": "windowed", "window": flags["window"]}
    remembers = {"index": {"kind": flags["speeds"]}, "memory": memory}
    settings = None if saved is None else _parts(saved, flags, memory)
    header = {**header, "settings": settings, "remembers": remembers}
    homes = {"latency_min": "fastest_s", "latency_max": "slowest_s", "alpha": "weight.alpha"}
    homes |= {name: name for name in ("selected", "loss")}
    homes |= {name: f"index.{name}" for name in ("centre", "scale", "gram", "moment", "pooled")}
    moved = {}
    for name, array in arrays.items():
        room, _, leaf = name.partition("/")
        home = homes.get(leaf, f"memory.{leaf}") if room == "state" else leaf
        moved[f"{room}/{home}" if leaf else name] = array
    return header, moved


def _parts(saved: Header, flags: Header, memory: Header) -> Header:
    """Return BSFL's settings of schema 2."""
    names = ("beta", "generalization", "tau_min", "tau_max", "solver")
    settings = {name: saved[name] for name in names if name in saved}
    settings |= {"alpha": saved.get("alpha", 1.0), "memory": memory}
    if saved.get("floor") is not None:
        settings["alpha"] = {"kind": "floor", "share": saved["floor"]}
    elif saved.get("max_gini") is not None:
        settings["alpha"] = {"kind": "max-gini", "limit": saved["max_gini"]}
    settings["index"] = {"kind": "means", "radius": saved.get("radius", "paper")}
    if flags["speeds"] == "lognormal":
        settings["index"] = {
            "kind": "lognormal",
            "quantile": saved.get("quantile") or 0.5,
            "optimism": saved.get("optimism", 1.0),
        }
    return settings


def chances_by_rounds(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Schema 2 to 3: chances were not counted; everyone is taken to have had its part of rounds."""
    member, since, left = (arrays[f"clients/{name}"] for name in ("member", "since", "left"))
    rounds = np.maximum(np.where(member, header["t"] + 1, left) - since, 0)[: header["n_state"]]
    n_members = max(int(np.count_nonzero(member)), 1)
    share = min(1.0, header["cohort_size"] / n_members)
    header = {**header, "invite": 1.0}
    m, t = header["cohort_size"], header["t"]
    n_wanted = header.get("n_wanted") or m
    sizes = dict.fromkeys(arrays["waiting"][:, 1].tolist(), (m, m))
    sizes |= {t: (n_wanted, min(n_wanted, m))} if t else {}
    listed = np.array([(one, *size) for one, size in sizes.items()], dtype=np.int64)
    chances = {"ledger/opportunity": rounds * share, "sizes": listed.reshape(-1, 3)}
    return header, {**arrays, **chances}


def last_seen(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Schema 3 to 4: when a client was last there was not kept; nobody is forgotten at once."""
    member, left = arrays["clients/member"], arrays["clients/left"]
    seen = np.where(member, header["t"], left)
    nothing = np.zeros((len(member), 0))
    arrays = {"clients/features": nothing, "clients/seen": seen, **arrays}
    return {**header, "forget_after": None}, arrays


def as_it_is(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Schema 4 to 5: more is counted of each client; in an older file it starts from nothing."""
    return header, arrays


def rounds_of_losses(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Schema 5 to 6: Pace did not count rounds that told losses; each is taken to have done so."""
    if "state/trend.t" in arrays:
        arrays = {**arrays, "state/trend.n_rounds": arrays["state/trend.t"]}
    return header, arrays


STEPS: dict[int, Callable[[Header, Arrays], tuple[Header, Arrays]]] = {
    1: flags_to_parts,
    2: chances_by_rounds,
    3: last_seen,
    4: as_it_is,
    5: rounds_of_losses,
}
"""The step from each schema to the next."""
