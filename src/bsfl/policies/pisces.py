"""Pisces: large losses and little staleness, for asynchronous training (Jiang et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ROUNDS, number, per_client
from bsfl.errors import InvalidInput
from bsfl.estimators.moments import Averages
from bsfl.policies.oort import statistical_utility
from bsfl.policy import LOSS, SAMPLES, Policy, top_m
from bsfl.types import FloatArray, IntArray, Rng, RoundContext, RoundReport


@dataclass(slots=True, kw_only=True)
class PiscesState(Averages):
    """Averages of staleness, and the clients in flight.

    Attributes:
        utility: Statistical utility of each client's last response, 0 without one.
        in_flight: 1 for a client with a pending response, 0 for others.
        n_in_flight: How many clients are in flight.
        max_in_flight: The largest number of clients that were in flight at a time.
        t: The latest round that was reported.
    """

    mean: FloatArray = per_client(0.0, low=0.0)
    utility: FloatArray = per_client(0.0, low=0.0)
    in_flight: IntArray = per_client(0, high=1)
    n_in_flight: int = 0
    max_in_flight: int = 0
    t: int = number(0, high=ROUNDS)

    def check(self) -> None:
        """Check that n_in_flight is right."""
        if self.n_in_flight != self.in_flight.sum():
            raise InvalidInput("n_in_flight does not count the clients in flight")

    def recount(self) -> None:
        """Count the clients in flight again after clients were forgotten."""
        self.n_in_flight = int(self.in_flight.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pisces(Policy):
    r"""Select clients with large losses whose responses are not stale.

    Select the m clients with the largest U_k / (1 + s_k)^penalty.

    U_k = n_k loss_k is the utility that Oort uses. s_k is the mean staleness of a client's
    responses: how many clients were invited between its invitation and its response, over the
    largest number of clients in flight. Unseen clients come first.

    >>> from bsfl import Observation, Scheduler
    >>> scheduler = Scheduler(Pisces(), cohort_size=1)
    >>> scheduler.join(["ann", "bob"], samples=[9, 9])
    >>> ann, bob = (Observation(latency_s=1.0, loss=loss) for loss in (0.1, 2.0))
    >>> cohort = scheduler.select(cohort_size=2)
    >>> rejected = scheduler.observe({"ann": ann, "bob": bob}, round=cohort)
    >>> scheduler.select()
    ['bob']

    Attributes:
        penalty: Exponent of the staleness (beta).
    """

    needs: ClassVar = LOSS | SAMPLES
    search_space: ClassVar = tuple({"penalty": penalty} for penalty in (0.25, 1.0, 2.0))

    penalty: float = 0.5

    def __post_init__(self) -> None:
        validation.between("penalty", self.penalty, 0.0, 100.0)

    def init(self, n_clients: int) -> PiscesState:
        return PiscesState.of(n_clients)

    def select(self, state: PiscesState, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        with np.errstate(over="ignore"):  # an infinite penalty leaves nothing of the utility
            score = state.utility[clients] / (1.0 + state.mean[clients]) ** self.penalty
        score[context.task.invitations[clients] == 0] = np.inf
        return clients[top_m(score, context.n_invited, rng)]

    def observe(self, state: PiscesState, context: RoundContext, report: RoundReport) -> None:
        utility = statistical_utility(report.samples, report.loss)
        known = ~np.isnan(utility)
        state.t = max(state.t, context.round)
        self.track_in_flight(state, report)
        n_invited_since = (state.t - context.round) * context.n_invited
        staleness = np.full(len(report.clients), n_invited_since / max(state.max_in_flight, 1))
        state.learn(report, staleness)
        state.utility[report.clients[known]] = utility[known]

    def track_in_flight(self, state: PiscesState, report: RoundReport) -> None:
        """Count the clients in flight: first add the invited, then remove the reported clients."""
        state.n_in_flight += int(np.count_nonzero(state.in_flight[report.invited] == 0))
        state.in_flight[report.invited] = 1
        state.max_in_flight = max(state.max_in_flight, state.n_in_flight)
        state.n_in_flight -= int(np.count_nonzero(state.in_flight[report.clients]))
        state.in_flight[report.clients] = 0
