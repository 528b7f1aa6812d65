"""Every policy and component that comes with bsfl, and everything that a scheduler saves."""

import json
from itertools import cycle, product

import numpy as np

from bsfl import (
    BSFL,
    Discounted,
    Lognormal,
    MaxGini,
    MinParticipation,
    Pace,
    SlidingWindow,
    UCBIndex,
)
from bsfl.errors import InvalidInput
from bsfl.estimators.confidence import CONFIDENCE_WIDTHS
from bsfl.estimators.generalization import DEFICITS
from bsfl.estimators.moments import CumulativeMean
from bsfl.persistence import snapshot
from bsfl.policies import POLICIES, make_policy
from bsfl.policy import check_forgettable
from bsfl.solvers import SOLVERS

N_INDEXED = 40
"""Clients that the examples of policies with settings by dense index cover."""


def registered():
    """Return every policy of the registry by name, with its example settings."""
    return {name: make_policy(name, **POLICIES[name].example) for name in POLICIES}


def bsfl_variants():
    """Return BSFL with every combination of components; the solvers take turns."""
    indices = [
        *(UCBIndex(confidence_width=width) for width in CONFIDENCE_WIDTHS),
        Lognormal(quantile=0.9),
    ]
    memories = [CumulativeMean(), Discounted(0.9), SlidingWindow(10)]
    weights = [(3.0, name) for name in DEFICITS]
    weights += list(product([MinParticipation(0.6), MaxGini(0.2)], ["equal", "opportunity"]))
    solvers = cycle(["exact", "exhaustive", "exact", *SOLVERS])
    found = {}
    for index, memory, (alpha, g) in product(indices, memories, weights):
        solver, tau_max = next(solvers), [None, 20.0][len(found) % 2]
        policy = BSFL(
            alpha=alpha,
            generalization=g,
            index=index,
            memory=memory,
            solver=solver,
            tau_max=tau_max,
            beta=1 + len(found) % 3,
        )
        found[f"{index}-{memory}-{alpha}-{g}-{solver}"] = policy
    return found


def pace_variants():
    """Return Pace with every combination of a few settings."""
    choices = product([None, 0.0, 1.0, 2.0], [0.0, 0.8, 1.0], [None, 20.0])
    return {
        f"pace-{fairness}-{least}-{tau}": Pace(
            fairness=fairness, min_participation=least, tau_max=tau
        )
        for fairness, least, tau in choices
    }


def is_forgettable(policy):
    """Return whether clients of a policy can be forgotten."""
    try:
        check_forgettable(policy)
    except InvalidInput:
        return False
    return True


def saved_state(scheduler):
    """Return everything that a save would write, without writing it: header, arrays and ids.

    Times are as they are, not as ages: the clock goes on.
    """
    header, arrays = snapshot.contents(scheduler)
    arrays["rounds/opened_s"] = np.array([one.opened_s for one in scheduler._engine.rounds])
    kept = {n: (a.dtype.str, a.shape, np.ascontiguousarray(a).tobytes()) for n, a in arrays.items()}
    return {"header": json.dumps(header), "ids": list(scheduler._ids.names), **kept}


def differences(one, other):
    """Return the names of what differs between two saved states."""
    return sorted(name for name in one.keys() | other if one.get(name) != other.get(name))


def check_consistent(scheduler):
    """Check that what is kept twice, to be found fast, agrees; a save writes it once."""
    engine, ids = scheduler._engine, scheduler._ids
    assert ids._index == {client: k for k, client in enumerate(ids.names)}
    assert len(ids.names) == engine.pool.n
    assert engine._undo is None
    pending = {}
    for one in engine.rounds:
        for client in one.pending.tolist():
            pending.setdefault(client, []).append(one.number)
    found = {k: list(engine.rounds.pending_rounds(k)) for k in engine.rounds.in_flight}
    assert found == pending
    assert engine.rounds.n_pending == sum(map(len, pending.values()))
    assert engine.pool.n_members == np.count_nonzero(engine.pool.member[: engine.pool.n])
    n = engine.pool.n
    assert not np.any(engine.pool.online[:n] & ~engine.pool.member[:n])
