"""bsfl inside Flower: `strategy = Selected(strategy, scheduler)`.

What the scheduler is made of can be imported from here as well, so that one import is enough.
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
