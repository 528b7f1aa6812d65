"""Pisces: much loss and little staleness, for rounds without a barrier (Jiang et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.estimation.averages import Averages
from bsfl.policies.base import top_m
from bsfl.policies.oort import statistical_utility
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import LOSS, SAMPLES, require_losses, sample_counts
from bsfl.state import per_client


@dataclass(slots=True, kw_only=True)
class PiscesState(Averages):
    """Averages of staleness, and who is at work.

    Attributes:
        utility: Statistical utility when the client last answered, 0 if it never did.
        at_work: 1 for a client that owes an answer, 0 else.
        most_at_work: The largest number of clients that were at work together.
        n_at_work: How many are now.
        t: The latest question.
    """

    utility: FloatArray = per_client(0.0, low=0.0)
    at_work: IntArray = per_client(0, high=1)
    most_at_work: int = 0
    n_at_work: int = 0
    t: int = 0

    def check(self) -> None:
        """Check that staleness is none below 0, and that those at work were counted."""
        if np.any(self.mean < 0) or self.n_at_work != self.at_work.sum():
            raise InvalidInput("staleness and those at work do not fit together")

    def recount(self) -> None:
        """Count again who is at work, as clients were forgotten."""
        self.n_at_work = int(self.at_work.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pisces:
    r"""Choose clients with large losses whose answers do not come stale.

    Choose the m clients with the largest U_k / (1 + s_k)^penalty.

    U_k = n_k loss_k is the utility that Oort uses. s_k is the mean staleness of a client's answers:
    how many clients were invited after it and before its answer, over the largest number that were
    at work together. Clients never chosen come first.

    Attributes:
        penalty: Exponent of the staleness (beta).
    """

    needs: ClassVar = LOSS | SAMPLES
    tuning: ClassVar = tuple({"penalty": penalty} for penalty in (0.25, 1.0, 2.0))

    penalty: float = 0.5

    def __post_init__(self) -> None:
        checks.between("penalty", self.penalty, 0.0, 100.0)

    def init(self, n_clients: int) -> PiscesState:
        return PiscesState.of(n_clients)

    def select(self, state: PiscesState, context: RoundContext, rng: Rng) -> IntArray:
        clients = context.available
        score = state.utility[clients] / (1.0 + state.mean[clients]) ** self.penalty
        score[state.selected[clients] == 0] = np.inf
        return clients[top_m(score, context.cohort_size, rng)]

    def observe(self, state: PiscesState, context: RoundContext, report: Report) -> None:
        require_losses("pisces", report)
        utility = statistical_utility(sample_counts("pisces", report, context), report.loss)
        known = ~np.isnan(utility)
        state.t = max(state.t, context.t)
        self.book(state, report)
        invited = (state.t - context.t) * context.cohort_size
        staleness = np.full(len(report.clients), invited / max(state.most_at_work, 1))
        state.learn(report, staleness)
        state.utility[report.clients[known]] = utility[known]

    def book(self, state: PiscesState, report: Report) -> None:
        """Count who is at work, the chosen before those that have ended."""
        state.n_at_work += int(np.count_nonzero(state.at_work[report.chosen] == 0))
        state.at_work[report.chosen] = 1
        state.most_at_work = max(state.most_at_work, state.n_at_work)
        state.n_at_work -= int(np.count_nonzero(state.at_work[report.clients]))
        state.at_work[report.clients] = 0
