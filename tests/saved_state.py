"""Everything that a scheduler would save, to compare before and after a call; files by hand."""

import hashlib
import json
import struct

import numpy as np

from bsfl.persistence import snapshot
from bsfl.persistence.statefile import MAGIC

PRELUDE = struct.Struct("<12sIQ32s")


def saved_state(scheduler):
    """Return header, arrays and ids; times as they are, not as ages."""
    header, arrays = snapshot.contents(scheduler)
    del header["clock_s"]
    arrays["rounds/opened_s"] = np.array([one.opened_s for one in scheduler._engine.rounds])
    kept = {n: (a.dtype.str, a.shape, np.ascontiguousarray(a).tobytes()) for n, a in arrays.items()}
    return json.dumps(header), kept, list(scheduler._ids.names), scheduler.in_flight


def differences(one, other):
    """Return the names of what differs between two such states."""
    one, other = (
        {"header": header, "ids": ids, "in flight": pending, **arrays}
        for header, arrays, ids, pending in (one, other)
    )
    return sorted(name for name in one.keys() | other if one.get(name) != other.get(name))


def finalised(body, version=1):
    """Return a state file with a valid checksum."""
    digest = hashlib.sha256(struct.pack("<I", version) + body).digest()
    return PRELUDE.pack(MAGIC, version, len(body), digest) + body
