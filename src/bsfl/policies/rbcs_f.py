"""RBCS-F: contextual bandit with a fairness queue (Huang et al. 2020)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.state import ROUNDS, per_client
from bsfl.errors import InvalidInput
from bsfl.estimators.moments import Queued, censored_latency
from bsfl.policy import Policy, check_covers, freeze_arrays
from bsfl.solvers import solve_exact
from bsfl.types import BoolArray, FloatArray, IntArray, Rng, RoundContext, RoundReport

TOLERANCE = 1e-6
"""Rounding errors of the smallest eigenvalue of a matrix, relative to its largest."""
MIN_RIDGE = 1e-12
"""Smallest ridge; the inverse of H_k starts at 1 / ridge, and must fit a state file."""


@dataclass(slots=True, kw_only=True)
class RbcsFState(Queued):
    """Queues, and one ridge regression of latency on context for each client.

    Attributes:
        inverse: H_k^-1, kept up to date by rank-one updates.
        theta: H_k^-1 b_k.
        last_selected: Round in which the client was last selected, -1 if never.
        in_a_row: Whether it was selected in the round before that one, too.
    """

    inverse: FloatArray = field(metadata={"low": -1.0 / MIN_RIDGE, "high": 1.0 / MIN_RIDGE})
    theta: FloatArray
    last_selected: IntArray = per_client(-1, high=ROUNDS)
    in_a_row: BoolArray = per_client(False)

    def check(self) -> None:
        """Check that the matrices are inverses of positive definite ones."""
        if not len(self.inverse):
            return
        eigenvalues = np.linalg.eigvalsh(self.inverse)
        is_negative = eigenvalues[:, 0] < -TOLERANCE * eigenvalues[:, -1]
        if np.any(is_negative) or np.any(self.inverse != self.inverse.transpose(0, 2, 1)):
            raise InvalidInput("inverse must hold symmetric positive definite matrices")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RbcsF(Policy):
    r"""Select clients that are fast by their device features, none of which waits for too long.

    Select the cohort that minimises V max_S latency_k - sum_S z_k.

    latency_k = max(0, c_k . theta_k - a sqrt(c_k H_k^-1 c_k)) is a lower confidence bound from the
    client's context c_k, by ridge regression: H_k = lambda I + sum c c', b_k = sum tau c,
    theta_k = H_k^-1 b_k. The queue z_k <- max(z_k + beta - [k was selected], 0) grows while k
    waits.

    >>> from bsfl import Scheduler
    >>> scheduler = Scheduler(RbcsF(tau_max=10.0), cohort_size=2)
    >>> cohort = scheduler.select(["ann", "bob", "cem"], cohort_size=3)
    >>> scheduler.observe({"ann": 5.0, "bob": 1.0, "cem": 2.0})
    {}
    >>> scheduler.select()
    ['bob', 'cem']

    Attributes:
        tau_max: Deadline in seconds; a later response, or none, counts as this latency.
        compute: For each client a number proportional to its computing time, such as 1 / clock
            rate, by dense index. With `transfer` the context is
            [compute, was selected in the last round, transfer]; without both it is [1].
        transfer: The same for its transfer time, such as model size / bandwidth.
        latency_weight: V, the weight of a second against a unit of queue.
        exploration: a, the factor of the confidence width.
        ridge: lambda, the weight of the prior latency 0 s.
        phi: Fraction of its equal share m/K that a client is guaranteed: beta = phi m/K. Below 1,
            because at 1 the queues would grow for ever.
    """

    state_keys: ClassVar = ("n_features",)
    search_space: ClassVar = tuple({"latency_weight": v} for v in (5.0, 80.0, 0.5))
    example: ClassVar = {
        "tau_max": 20.0,
        "compute": np.linspace(0.1, 2.0, 40),
        "transfer": np.linspace(3.0, 0.2, 40),
    }

    tau_max: float
    compute: FloatArray | None = field(default=None, repr=False)
    transfer: FloatArray | None = field(default=None, repr=False)
    latency_weight: float = 20.0
    exploration: float = 0.1
    ridge: float = 1.0
    phi: float = 0.5

    def __post_init__(self) -> None:
        validation.seconds("tau_max", self.tau_max)
        if (self.compute is None) != (self.transfer is None):
            raise InvalidInput("compute and transfer must be given together, or neither")
        freeze_arrays(self, "compute", "transfer")
        validation.at_least("latency_weight", self.latency_weight, 0.0)
        validation.at_least("exploration", self.exploration, 0.0)
        validation.at_least("ridge", self.ridge, MIN_RIDGE)
        if validation.between("phi", self.phi, 0.0, 1.0) == 1.0:
            raise InvalidInput("phi must be below 1, or the queues grow for ever, got 1.0")

    def init(self, n_clients: int) -> RbcsFState:
        check_covers(self, n_clients, "compute", "transfer")
        return RbcsFState.of(
            n_clients,
            inverse=np.tile(np.eye(self.n_features) / self.ridge, (n_clients, 1, 1)),
            theta=np.zeros((n_clients, self.n_features)),
        )

    @property
    def n_features(self) -> int:
        return 1 if self.compute is None else 3

    def select(self, state: RbcsFState, context: RoundContext, rng: Rng) -> IntArray:
        """Return the best cohort, ties broken at random.

        Minimising V max_S latency - sum_S z is maximising min_S (-V latency) + (m / m) sum_S z,
        which the exact solver does in O(K log K).
        """
        clients, m = context.available, context.n_invited
        if len(clients) <= m:
            return clients
        u = -self.latency_weight * self.latencies(state, context, clients)
        z = state.queues(context, clients, self.beta(context))
        order = rng.permutation(len(clients))  # the solver takes the first of equals
        best = solve_exact(u[order], z[order], m, alpha=m)
        return np.sort(clients[order[best]])

    def observe(self, state: RbcsFState, context: RoundContext, report: RoundReport) -> None:
        invited = report.invited
        state.serve(context, invited, self.beta(context))
        last = state.last_selected[invited]  # reports of several rounds may overtake
        state.in_a_row[invited] = last == context.round - 1
        state.last_selected[invited] = np.maximum(last, context.round)
        latency = censored_latency(report, self.tau_max)
        features = self.features(report.clients, state.in_a_row[report.clients])
        gain = rank_one_update(state.inverse, report.clients, features)
        error = latency - np.einsum("ki,ki->k", features, state.theta[report.clients])
        state.theta[report.clients] += gain * error[:, np.newaxis]
        state.learn(report, latency)

    def latencies(self, state: RbcsFState, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return latency_k; tau_max for a client that was selected and never reported."""
        features = self.features(clients, state.last_selected[clients] == context.round - 1)
        mean = np.einsum("ki,ki->k", features, state.theta[clients])
        solved = np.einsum("kij,kj->ki", state.inverse[clients], features)
        variance = np.einsum("ki,ki->k", features, solved)
        bound = np.maximum(0.0, mean - self.exploration * np.sqrt(np.maximum(variance, 0.0)))
        unresponsive = (context.task.invitations[clients] > 0) & (state.observed[clients] == 0)
        return np.where(unresponsive, self.tau_max, bound)

    def features(self, clients: IntArray, in_a_row: BoolArray) -> FloatArray:
        """Return the contexts c_k."""
        if self.compute is None or self.transfer is None:
            return np.ones((len(clients), 1))
        return np.column_stack([self.compute[clients], in_a_row, self.transfer[clients]])

    def beta(self, context: RoundContext) -> float:
        """Return the rate at which a queue grows."""
        return self.phi * context.n_invited / max(context.n_clients, 1)


def rank_one_update(inverse: FloatArray, clients: IntArray, features: FloatArray) -> FloatArray:
    r"""Update H_k^-1 of clients for H_k <- H_k + c_k c_k'; return the new H_k^-1 c_k.

    Sherman and Morrison: (H + c c')^-1 = H^-1 - (H^-1 c)(H^-1 c)' / (1 + c' H^-1 c).
    """
    old = np.einsum("kij,kj->ki", inverse[clients], features)
    scale = 1.0 + np.einsum("ki,ki->k", features, old)
    inverse[clients] -= old[:, :, np.newaxis] * old[:, np.newaxis, :] / scale[:, None, None]
    return np.asarray(old / scale[:, np.newaxis])
