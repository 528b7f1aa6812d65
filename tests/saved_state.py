"""Everything that a scheduler would save, to compare before and after a call."""

import json

import numpy as np

from bsfl.persistence import snapshot


def saved_state(scheduler):
    """Return header, arrays and ids; times as they are, not as ages."""
    header, arrays = snapshot.contents(scheduler)
    del header["clock_s"]
    arrays["rounds/opened_s"] = np.array([one.opened_s for one in scheduler._engine.rounds])
    kept = {n: (a.dtype.str, a.shape, np.ascontiguousarray(a).tobytes()) for n, a in arrays.items()}
    return json.dumps(header), kept, list(scheduler._ids.names), scheduler.in_flight


def differences(one, other):
    """Return the names of what differs between two such states."""
    (header, arrays, ids, pending), (other_header, other_arrays, other_ids, other_pending) = (
        one,
        other,
    )
    named = {
        "header": (header, other_header),
        "ids": (ids, other_ids),
        "in flight": (pending, other_pending),
    }
    named |= {n: (arrays.get(n), other_arrays.get(n)) for n in arrays.keys() | other_arrays.keys()}
    return sorted(name for name, (a, b) in named.items() if a != b)
