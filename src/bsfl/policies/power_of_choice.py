"""Power-of-Choice: the clients with the largest loss among a few candidates (Cho et al. 2022)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.estimation.averages import Selections
from bsfl.policies.base import top_m, weighted_draw
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import LOSS, SAMPLES, Needs, registered_sizes, require_losses

AskLosses = Callable[[IntArray], FloatArray]
"""Returns the loss of the current global model on the data of each of these clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOfChoice:
    r"""Draw a few candidates and choose those with the largest losses.

    Draw d candidates with weights n_k, then choose the m of them with the largest loss.

    With `ask` that loss is the current global model's, asked from the d candidates (pow-d). Without
    it, it is the last one the client reported, infinite if it was never chosen (rpow-d): that takes
    no extra messages.

    Attributes:
        candidates: d, at least the cohort size; 2 m when None.
        ask: Function that returns the losses of the candidates, given their dense indices.
    """

    tuning: ClassVar = ({"candidates": 35}, {"candidates": 100}, {"candidates": 200})

    candidates: int | None = None
    ask: AskLosses | None = None

    def __post_init__(self) -> None:
        if self.candidates is not None:
            checks.natural("candidates", self.candidates)
        if self.ask is not None and not callable(self.ask):
            raise InvalidInput(f"ask must be a function of the candidates, got {self.ask!r}")

    @property
    def needs(self) -> Needs:
        return SAMPLES | LOSS if self.ask is None else SAMPLES

    def init(self, n_clients: int) -> Selections:
        return Selections.of(n_clients)

    def select(self, state: Selections, context: RoundContext, rng: Rng) -> IntArray:
        sizes = registered_sizes(context)
        clients, m = context.available, context.cohort_size
        d = 2 * m if self.candidates is None else self.candidates
        if d < m:
            raise InvalidInput(f"candidates must be at least the cohort size {m}, got {d}")
        if len(clients) <= m:
            return clients
        candidates = clients[weighted_draw(np.log(sizes[clients]), d, rng)]
        if self.ask is None:
            loss = last_losses(state, candidates)
        else:
            loss = np.asarray(self.ask(candidates), dtype=np.float64)
            if loss.shape != candidates.shape or np.isnan(loss).any():
                raise InvalidInput("ask must return one loss for every candidate")
        return candidates[top_m(loss, m, rng)]

    def observe(self, state: Selections, context: RoundContext, report: Report) -> None:
        if self.ask is None:
            require_losses("power-of-choice", report)
        state.book(report)


def last_losses(state: Selections, clients: IntArray) -> FloatArray:
    """Return the last loss each client reported, infinite if it was never chosen.

    Departure: one that was chosen and never told a loss comes last, else it would come first in
    every round for as long as it stays silent.
    """
    unknown = np.where(state.selected[clients] == 0, np.inf, -np.inf)
    loss = state.loss[clients]
    return np.where(np.isnan(loss), unknown, loss)
