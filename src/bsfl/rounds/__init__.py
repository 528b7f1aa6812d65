"""Follows rounds in real time; knows neither a framework nor the simulator."""

from bsfl.rounds.buffer import Buffer, BufferPlan, staleness_weight
from bsfl.rounds.clock import SYSTEM, Clock, pause_s
from bsfl.rounds.invitations import Invitation, Invitations
from bsfl.rounds.manager import RoundManager
from bsfl.rounds.running import RoundResult, RunningRound

__all__ = [
    "SYSTEM",
    "Buffer",
    "BufferPlan",
    "Clock",
    "Invitation",
    "Invitations",
    "RoundManager",
    "RoundResult",
    "RunningRound",
    "pause_s",
    "staleness_weight",
]
