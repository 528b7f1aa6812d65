"""How a round is opened, followed and closed; knows neither a framework nor the simulator."""

from bsfl.rounds.buffer import Buffer, BufferPlan, staleness_weight
from bsfl.rounds.invitations import Invitation, Invitations
from bsfl.rounds.plan import SYSTEM, Clock, RoundPlan, pause_s
from bsfl.rounds.round import ClosedRound, Round
from bsfl.rounds.rounds import Rounds

__all__ = [
    "SYSTEM",
    "Buffer",
    "BufferPlan",
    "Clock",
    "ClosedRound",
    "Invitation",
    "Invitations",
    "Round",
    "RoundPlan",
    "Rounds",
    "pause_s",
    "staleness_weight",
]
