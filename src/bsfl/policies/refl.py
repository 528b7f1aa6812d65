"""REFL: clients that will soon be offline come first (Abdelmoniem et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ROUNDS, ClientState, number
from bsfl.policy import Policy, top_m
from bsfl.types import TIMEOUT, BoolArray, IntArray, Rng, RoundContext, RoundReport


@dataclass(slots=True, kw_only=True)
class ReflState(ClientState):
    """How long rounds last.

    Attributes:
        t: The latest round with a response or a timeout.
        duration_s: Its duration so far, the longest latency that was waited for.
        before_s: Moving average of the durations of all rounds before it, 0 while there is none.
    """

    t: int = number(0, high=ROUNDS)
    duration_s: float = number(0.0, low=0.0, high=1e12)
    before_s: float = number(0.0, low=0.0, high=1e12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refl(Policy):
    r"""Select clients expected to be online for this round but not the next; the rest at random.

    A client that has been online for a seconds is expected to stay for another `stay` x a. It comes
    first if that is at least one slot and less than two. The slot is the moving average
    mu <- (1 - history) D + history mu of the durations D of rounds. If the server does not know
    how long clients have been online, the selection is uniform.

    >>> Refl().slot_s(ReflState(duration_s=20.0, before_s=10.0))
    17.5

    Attributes:
        history: Weight of the past in the moving average (alpha).
        stay: Further seconds online expected for every second so far.
    """

    search_space: ClassVar = ({"stay": 0.5}, {"stay": 2.0}, {"stay": 4.0})

    history: float = 0.25
    stay: float = 1.0

    def __post_init__(self) -> None:
        validation.between("history", self.history, 0.0, 1.0)
        validation.positive("stay", self.stay)

    def init(self, n_clients: int) -> ReflState:
        return ReflState.of(n_clients)

    def select(self, state: ReflState, context: RoundContext, rng: Rng) -> IntArray:
        first = self.leaving(state, context).astype(np.float64)
        return context.available[top_m(first, context.n_invited, rng)]

    def observe(self, state: ReflState, context: RoundContext, report: RoundReport) -> None:
        waited_s = report.latency_s[report.usable | (report.outcome == TIMEOUT)]
        is_old = context.round < state.t and context.n_invited > 1  # a round of one ends with it
        if len(waited_s) == 0 or is_old:
            return
        if context.round != state.t:
            state.before_s, state.duration_s, state.t = self.slot_s(state), 0.0, context.round
        state.duration_s = max(state.duration_s, float(waited_s.max()))

    def slot_s(self, state: ReflState) -> float:
        """Return mu, the length of a slot in seconds; 0 before the first round."""
        if state.before_s == 0.0:
            return state.duration_s
        return (1.0 - self.history) * state.duration_s + self.history * state.before_s

    def leaving(self, state: ReflState, context: RoundContext) -> BoolArray:
        """Return whether each available client is expected to leave during the next slot."""
        online_s = context.online_s
        if online_s is None:
            return np.zeros(len(context.available), dtype=bool)
        remaining_s, slot_s = self.stay * online_s, self.slot_s(state)
        return np.asarray((slot_s <= remaining_s) & (remaining_s < 2.0 * slot_s))
