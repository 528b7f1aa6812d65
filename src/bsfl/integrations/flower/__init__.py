"""bsfl inside Flower: `strategy = Selected(strategy, scheduler)`.

What the scheduler is made of can be imported from here as well, so that one import is enough.

Three ways in, each on the modules below it:

    selected.py    Selected: any strategy, with chosen clients  around.py      a wrapped strategy
    buffered.py    Buffered: no barrier (async_run.py its loop) versions.py    its old models
    loop.py        rounds: an app with a loop of its own
    options.py     what all three take, and what is made of it
    federation.py  one run: choose, exchange, evaluate          checkpoint.py  what outlives it
    nodes.py       who is connected, has left, may train        summary.py     what it tells
    directory.py   which node has which name (identity.py)      questions.py   asks them for it
    wire.py        messages out, replies in, how long it took   content.py     what a reply holds
    grid.py        grids around Flower's, one in virtual time   simulated.py   its seconds
"""

from bsfl.extras import optional_imports
from bsfl.policies import BSFL, make_policy
from bsfl.scheduler import Scheduler

with optional_imports():
    from bsfl.integrations.flower.buffered import Buffered
    from bsfl.integrations.flower.identity import Identity
    from bsfl.integrations.flower.loop import Cohort, rounds
    from bsfl.integrations.flower.selected import Selected
    from bsfl.integrations.flower.simulated import simulated
    from bsfl.integrations.flower.summary import (
        Participation,
        RoundSummary,
        VersionSummary,
        write_latencies,
    )
    from bsfl.integrations.flower.wire import REPORTED_KEY, Latency

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
