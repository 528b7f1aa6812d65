"""bsfl inside Flower: `strategy = Selected(strategy, scheduler)`.

Scheduler, BSFL and make_policy can be imported from here as well, so that one import is enough.

There are three entry points, each built on the modules below it:

    selected.py          Selected: any strategy, with selected clients
    buffered.py          Buffered: asynchronous training (async_run.py: its loop, versions.py: its
                         old models)
    loop.py              rounds: for an app with its own loop

    options.py           the options of all three, and the objects that are built of them
    wrapper.py           a strategy that wraps another one
    federation.py        one run: select, exchange, evaluate
    nodes.py             which nodes are connected, have left, may train
    node_registry.py     client names of nodes (identity.py; identity_queries.py: from queries)
    message_exchange.py  messages out, replies in, latencies (content.py: what replies hold)
    grid.py              grids that wrap Flower's, one with a virtual clock (simulated.py)
    checkpoint.py        files that outlive the server
    summary.py           summaries of rounds, versions and clients
"""

from bsfl.extras import optional_imports
from bsfl.policies import BSFL, make_policy
from bsfl.scheduler import Scheduler

with optional_imports():
    from bsfl.integrations.flower.buffered import Buffered
    from bsfl.integrations.flower.identity import Identity
    from bsfl.integrations.flower.loop import Cohort, rounds
    from bsfl.integrations.flower.message_exchange import REPORTED_KEY, Latency
    from bsfl.integrations.flower.selected import Selected
    from bsfl.integrations.flower.simulated import simulated
    from bsfl.integrations.flower.summary import (
        Participation,
        RoundSummary,
        VersionSummary,
        write_latencies,
    )

__all__ = [
    "BSFL",
    "REPORTED_KEY",
    "Buffered",
    "Cohort",
    "Identity",
    "Latency",
    "Participation",
    "RoundSummary",
    "Scheduler",
    "Selected",
    "VersionSummary",
    "make_policy",
    "rounds",
    "simulated",
    "write_latencies",
]
