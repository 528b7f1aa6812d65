"""What is estimated of clients: each component owns its settings, checks and part of the state.

moments         which values of a client count, and how much
lognormal       a hierarchical model of latencies
indices         the speed index that BSFL ranks clients by
confidence      confidence widths
generalization  how far a client is below its share: BSFL's g
participation   a weight alpha that follows a participation target
response_value  what a response is worth: the fairness exponent, the value per second
over_selection  how many clients to invite
fairness        Gini coefficient, Lorenz curve, capped shares
"""

from bsfl.estimators.confidence import CONFIDENCE_WIDTHS, ConfidenceWidth, hoeffding_width
from bsfl.estimators.indices import INDICES, Evidence, Index, Lognormal, UCBIndex
from bsfl.estimators.moments import (
    MEMORIES,
    Averages,
    CumulativeMean,
    Discounted,
    Memory,
    Queued,
    RunningMoments,
    SlidingWindow,
    censored_latency,
)
from bsfl.estimators.participation import (
    TARGETS,
    MaxGini,
    MinParticipation,
    ParticipationTarget,
)

__all__ = [
    "CONFIDENCE_WIDTHS",
    "INDICES",
    "MEMORIES",
    "TARGETS",
    "Averages",
    "ConfidenceWidth",
    "CumulativeMean",
    "Discounted",
    "Evidence",
    "Index",
    "Lognormal",
    "MaxGini",
    "Memory",
    "MinParticipation",
    "ParticipationTarget",
    "Queued",
    "RunningMoments",
    "SlidingWindow",
    "UCBIndex",
    "censored_latency",
    "hoeffding_width",
]
