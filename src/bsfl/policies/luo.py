"""Adaptive client sampling by gradient norm, data and latency (Luo et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl.estimators.fairness import capped_shares
from bsfl.estimators.moments import Averages, censored_latency
from bsfl.policies.weighted_random import inclusion_draw
from bsfl.policy import LOSS, Policy
from bsfl.types import BoolArray, FloatArray, IntArray, Rng, RoundContext, RoundReport
from bsfl.validation import LATENCY_RANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Luo(Policy):
    r"""Draw clients with large losses more often, and slow clients less often.

    Draw m clients, k with a probability proportional to p_k G_k / sqrt(tau_k).

    p_k is a client's share of the data, G_k the last loss it reported, in place of the norm of its
    gradient, and tau_k its mean latency. Clients are drawn without replacement: k is included with
    probability pi_k = min(1, lambda q_k). Updates weigh p_k / pi_k, so that they are unbiased.

    >>> from bsfl import Observation, Scheduler
    >>> scheduler = Scheduler(Luo(tau_max=10.0, least=1e-6), cohort_size=2)
    >>> loss = {"ann": 0.0, "bob": 2.0, "cem": 2.0}
    >>> cohort = scheduler.select(list(loss), cohort_size=3)
    >>> scheduler.observe({k: Observation(latency_s=1.0, loss=loss[k]) for k in cohort})
    {}
    >>> scheduler.select()
    ['bob', 'cem']

    Attributes:
        tau_max: Deadline in seconds; a later response, or none, counts as this latency.
        speed: Exponent of the latency; 1/2 as published.
        least: G_k is at least this fraction of the mean, so that every client can be drawn.
    """

    needs: ClassVar = LOSS
    search_space: ClassVar = ({"speed": 0.25}, {"speed": 1.0}, {"least": 0.5})
    example: ClassVar = {"tau_max": 20.0}

    tau_max: float
    speed: float = 0.5
    least: float = 0.1

    def __post_init__(self) -> None:
        validation.seconds("tau_max", self.tau_max)
        validation.between("speed", self.speed, 0.0, 10.0)
        validation.between("least", validation.positive("least", self.least), 0.0, 1.0)

    def init(self, n_clients: int) -> Averages:
        return Averages.of(n_clients)

    def select(self, state: Averages, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        share = context.pool.data_shares(clients)
        weight = share * self.gains(state, context)[clients]
        return clients[inclusion_draw(weight, context.n_invited, rng)]

    def observe(self, state: Averages, context: RoundContext, report: RoundReport) -> None:
        state.learn(report, censored_latency(report, self.tau_max))

    def weights(self, state: Averages, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return p_k / pi_k, with p over the clients that could be drawn.

        These are the available clients and `clients`, which were selected earlier; all clients in
        a context that names no available ones. If len(clients) of n drawn clients respond, pi_k
        counts as pi_k len(clients) / n.
        """
        names_available = len(context.available) > 0
        drawable = np.arange(len(state.mean))
        if names_available:
            drawable = np.union1d(context.available, clients)
        share = context.pool.data_shares(drawable)
        n = min(context.n_invited, len(drawable))
        inclusion = capped_shares(share * self.gains(state, context)[drawable], n)
        share = share / (share.sum() or 1.0)
        ratio = np.divide(share, inclusion, out=np.zeros_like(share), where=inclusion > 0.0)
        weight = ratio[np.searchsorted(drawable, clients)]  # 0 for a client that left
        return np.asarray(weight * n / max(len(clients), 1) if names_available else weight)

    def gains(self, state: Averages, context: RoundContext) -> FloatArray:
        """Return G_k / tau_k^speed of every client."""
        last = context.task.last_loss
        loss = or_mean(np.abs(last), ~np.isnan(last))
        norm = np.maximum(loss, self.least * loss.mean() or 1.0)
        latency_s = np.clip(or_mean(state.mean, state.observed > 0), *LATENCY_RANGE)
        return np.asarray(norm / latency_s**self.speed)


def or_mean(values: FloatArray, known: BoolArray) -> FloatArray:
    """Return values, with the mean of the known ones for those that are not; 1 if none is known.

    >>> or_mean(np.array([2.0, np.nan, 4.0]), np.array([True, False, True]))
    array([2., 3., 4.])
    """
    return np.where(known, values, values[known].mean() if known.any() else 1.0)
