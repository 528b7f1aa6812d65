"""Power-of-Choice: the clients with the largest loss among a few candidates (Cho et al. 2022)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.policy import LOSS, SAMPLES, Needs, Policy, top_m, weighted_draw
from bsfl.types import FloatArray, IntArray, Rng, RoundContext

CandidateLosses = Callable[[IntArray], FloatArray]
"""Returns the loss of the current global model on the data of each of these clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOfChoice(Policy):
    r"""Draw a few candidates and select those with the largest losses.

    Draw d candidates with weights n_k, then select the m of them with the largest loss.

    With `ask` that loss is the current global model's, requested from the d candidates (pow-d).
    Without it, it is the last loss that a client reported, infinite for an unseen client (rpow-d);
    this takes no extra messages.

    >>> from bsfl import Scheduler
    >>> loss = np.array([0.1, 2.0, 1.0])
    >>> policy = PowerOfChoice(candidates=3, ask=lambda candidates: loss[candidates])
    >>> scheduler = Scheduler(policy, cohort_size=2)
    >>> scheduler.join(["ann", "bob", "cem"], samples=[9, 9, 9])
    >>> scheduler.select()
    ['bob', 'cem']

    Attributes:
        candidates: d, at least n_invited; None: twice n_invited.
        ask: Function that returns the losses of the candidates, given their dense indices.
    """

    search_space: ClassVar = ({"candidates": 35}, {"candidates": 100}, {"candidates": 200})

    candidates: int | None = None
    ask: CandidateLosses | None = None

    def __post_init__(self) -> None:
        if self.candidates is not None:
            validation.natural("candidates", self.candidates)
        if self.ask is not None and not callable(self.ask):
            raise InvalidInput(f"ask must be a function of the candidates, got {self.ask!r}")

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return SAMPLES | LOSS if self.ask is None else SAMPLES

    def select(self, state: None, context: RoundContext, rng: Rng) -> IntArray:
        sizes = context.pool.sizes
        clients, m = context.available, context.n_invited
        d = 2 * m if self.candidates is None else self.candidates
        if d < m:
            raise InvalidInput(f"candidates must be at least the cohort size {m}, got {d}")
        if len(clients) <= m:
            return clients
        candidates = clients[weighted_draw(np.log(sizes[clients]), d, rng)]
        if self.ask is None:
            loss = last_losses(context, candidates)
        else:
            loss = np.asarray(self.ask(candidates), dtype=np.float64)
            if loss.shape != candidates.shape or np.isnan(loss).any():
                raise InvalidInput("ask must return one loss for every candidate")
        return candidates[top_m(loss, m, rng)]


def last_losses(context: RoundContext, clients: IntArray) -> FloatArray:
    """Return the last loss each client reported, infinite for an unseen client.

    Departure: a client that was selected and never reported a loss comes last; otherwise it would
    come first in every round until it responds.
    """
    unknown = np.where(context.task.invitations[clients] == 0, np.inf, -np.inf)
    loss = context.task.last_loss[clients]
    return np.where(np.isnan(loss), unknown, loss)
