"""REFL: clients that can be reached now and not much longer (Abdelmoniem et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.policies.base import top_m
from bsfl.records import OK, TIMEOUT, BoolArray, IntArray, Report, Rng, RoundContext
from bsfl.state import ClientState, number


@dataclass(slots=True, kw_only=True)
class ReflState(ClientState):
    """How long rounds last.

    Attributes:
        t: The latest round that somebody ended, by an answer or by the deadline.
        duration_s: How long it has lasted so far: its longest wait for a client.
        before_s: Moving average of the durations of all rounds before it, 0 while there is none.
    """

    t: int = 0
    duration_s: float = number(0.0, low=0.0, high=1e12)
    before_s: float = number(0.0, low=0.0, high=1e12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refl:
    r"""Choose clients that will be there for this round and gone in the next; the rest at random.

    A client that has been online for a seconds is expected to stay for another `stay` x a. It comes
    first if that lasts for one slot and not for two. The slot is the moving average
    mu <- (1 - history) D + history mu of the durations D of rounds. Where the server does not know
    how long clients have been online, the choice is uniform.

    Attributes:
        history: Weight of the past in the moving average (alpha).
        stay: Further seconds online expected for every second so far.
    """

    tuning: ClassVar = ({"stay": 0.5}, {"stay": 2.0}, {"stay": 4.0})

    history: float = 0.25
    stay: float = 1.0

    def __post_init__(self) -> None:
        checks.between("history", self.history, 0.0, 1.0)
        checks.positive("stay", self.stay)

    def init(self, n_clients: int) -> ReflState:
        return ReflState.of(n_clients)

    def select(self, state: ReflState, context: RoundContext, rng: Rng) -> IntArray:
        first = self.leaving(state, context).astype(np.float64)
        return context.available[top_m(first, context.cohort_size, rng)]

    def observe(self, state: ReflState, context: RoundContext, report: Report) -> None:
        waited_s = report.latency[(report.outcome == OK) | (report.outcome == TIMEOUT)]
        is_old = context.t < state.t and context.cohort_size > 1  # a round of one is over with it
        if len(waited_s) == 0 or is_old:
            return
        if context.t != state.t:
            state.before_s, state.duration_s, state.t = self.slot_s(state), 0.0, context.t
        state.duration_s = max(state.duration_s, float(waited_s.max()))

    def slot_s(self, state: ReflState) -> float:
        """Return mu, the length of a slot in seconds; 0 before the first round."""
        if state.before_s == 0.0:
            return state.duration_s
        return (1.0 - self.history) * state.duration_s + self.history * state.before_s

    def leaving(self, state: ReflState, context: RoundContext) -> BoolArray:
        """Return whether each available client is expected to last for one slot and not for two."""
        online_s = context.online_s
        if online_s is None:
            return np.zeros(len(context.available), dtype=bool)
        left_s, slot_s = self.stay * online_s, self.slot_s(state)
        return np.asarray((slot_s <= left_s) & (left_s < 2.0 * slot_s))
