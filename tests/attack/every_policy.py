"""Every policy and part that comes with bsfl, and everything that a scheduler saves."""

import json
from itertools import cycle, product

import numpy as np

from bsfl import BSFL, Discounted, Floor, Lognormal, MaxGini, Means, Pace, Windowed
from bsfl.estimation.memory import Lasting
from bsfl.estimation.radii import RADII
from bsfl.generalization import DEFICITS
from bsfl.policies import POLICIES, make_policy
from bsfl.solvers import SOLVERS

N_PLACES = 40
"""Clients that a policy which is told numbers by place knows."""


def registered():
    """Return every policy of the registry by name, with its example settings."""
    return {name: make_policy(name, **getattr(POLICIES[name], "example", {})) for name in POLICIES}


def bsfl_variants():
    """Return BSFL with every combination of parts; the solvers take turns."""
    indices = [*(Means(radius=radius) for radius in RADII), Lognormal(quantile=0.9)]
    memories = [Lasting(), Discounted(0.9), Windowed(10)]
    weights = [(3.0, name) for name in DEFICITS]
    weights += list(product([Floor(0.6), MaxGini(0.2)], ["equal", "opportunity"]))
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
        f"pace-{evenness}-{least}-{tau}": Pace(evenness=evenness, least_share=least, tau_max=tau)
        for evenness, least, tau in choices
    }


def knows_places(policy):
    """Return whether a policy is told numbers by place, so that nobody can be forgotten."""
    names = ("mean_speed", "compute", "transfer")
    return any(isinstance(getattr(policy, name, None), np.ndarray) for name in names)


def saved_bytes(scheduler):
    """Return everything that a save would write, without writing it."""
    header, arrays = scheduler._snapshot().contents()
    kept = {n: (a.dtype.str, a.shape, np.ascontiguousarray(a).tobytes()) for n, a in arrays.items()}
    return json.dumps(header), kept, list(scheduler._clients.ids), scheduler.last_round
