"""RBCS-F: contextual bandit with a fairness queue (Huang et al. 2020)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.estimation.averages import Queued, believed_latency
from bsfl.records import BoolArray, FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import keep_known, must_cover
from bsfl.solvers import solve_exact
from bsfl.state import per_client


@dataclass(slots=True, kw_only=True)
class RbcsFState(Queued):
    """Queues, and one ridge regression of latency on context for each client.

    Attributes:
        inverse: H_k^-1, kept up to date by rank-one updates.
        theta: H_k^-1 b_k.
        last_chosen: Round in which the client was last chosen, -1 if never.
        in_a_row: Whether it was chosen in the round before that one, too.
    """

    inverse: FloatArray
    theta: FloatArray
    last_chosen: IntArray = per_client(-1)
    in_a_row: BoolArray = per_client(False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RbcsF:
    r"""Choose fast clients by what is known of their devices; nobody waits for too long.

    Choose the cohort that minimises V max_S latency_k - sum_S z_k.

    latency_k = max(0, c_k . theta_k - a sqrt(c_k H_k^-1 c_k)) is an optimistic guess from the
    client's context c_k, by ridge regression: H_k = lambda I + sum c c', b_k = sum tau c,
    theta_k = H_k^-1 b_k. The queue z_k <- max(z_k + beta - [k was chosen], 0) grows while k waits.

    Attributes:
        tau_max: Deadline in seconds; what comes later, or not at all, counts as that slow.
        compute: For each client a number proportional to its computing time, such as 1 / clock
            rate, by dense index. With `transfer` it makes the context
            [compute, was chosen in the last round, transfer]; without both the context is [1].
        transfer: The same for its transfer time, such as model size / bandwidth.
        latency_weight: V, what a second counts against a unit of queue.
        exploration: a, how optimistic the guess is.
        ridge: lambda, the weight of the guess "0 s" before anything is seen.
        phi: Part of its equal share m/K that a client is guaranteed: beta = phi m/K. Below 1, for
            at 1 the queues would grow for ever.
    """

    REMEMBERS_BY: ClassVar = ("n_features",)
    tuning: ClassVar = tuple({"latency_weight": v} for v in (5.0, 80.0, 0.5))
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
        checks.seconds("tau_max", self.tau_max)
        if (self.compute is None) != (self.transfer is None):
            raise InvalidInput("compute and transfer must be given together, or neither")
        keep_known(self, "compute", "transfer")
        checks.at_least("latency_weight", self.latency_weight, 0.0)
        checks.at_least("exploration", self.exploration, 0.0)
        checks.positive("ridge", self.ridge)
        if checks.between("phi", self.phi, 0.0, 1.0) == 1.0:
            raise InvalidInput("phi must be below 1, or the queues grow for ever, got 1.0")

    def init(self, n_clients: int) -> RbcsFState:
        must_cover(self, n_clients, "compute", "transfer")
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
        clients, m = context.available, context.cohort_size
        if len(clients) <= m:
            return clients
        u = -self.latency_weight * self.latencies(state, context, clients)
        z = state.queues(context, clients, self.beta(state, context))
        order = rng.permutation(len(clients))  # the solver takes the first of equals
        best = solve_exact(u[order], z[order], m, alpha=m)
        return np.sort(clients[order[best]])

    def observe(self, state: RbcsFState, context: RoundContext, report: Report) -> None:
        chosen = report.chosen
        state.serve(context, chosen, self.beta(state, context))
        state.in_a_row[chosen] = state.last_chosen[chosen] == context.t - 1
        state.last_chosen[chosen] = context.t
        latency = believed_latency(report, self.tau_max)
        features = self.features(report.clients, state.in_a_row[report.clients])
        gain = rank_one_update(state.inverse, report.clients, features)
        miss = latency - np.einsum("ki,ki->k", features, state.theta[report.clients])
        state.theta[report.clients] += gain * miss[:, np.newaxis]
        state.learn(report, latency)

    def latencies(self, state: RbcsFState, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return the optimistic latency of clients; tau_max while a chosen one is silent."""
        features = self.features(clients, state.last_chosen[clients] == context.t - 1)
        mean = np.einsum("ki,ki->k", features, state.theta[clients])
        solved = np.einsum("kij,kj->ki", state.inverse[clients], features)
        variance = np.einsum("ki,ki->k", features, solved)
        guess = np.maximum(0.0, mean - self.exploration * np.sqrt(variance))
        silent = (state.selected[clients] > 0) & (state.observed[clients] == 0)
        return np.where(silent, self.tau_max, guess)

    def features(self, clients: IntArray, in_a_row: BoolArray) -> FloatArray:
        if self.compute is None or self.transfer is None:
            return np.ones((len(clients), 1))
        return np.column_stack([self.compute[clients], in_a_row, self.transfer[clients]])

    def beta(self, state: RbcsFState, context: RoundContext) -> float:
        """Return the rate at which a queue grows."""
        return self.phi * context.cohort_size / context.n_members(len(state.selected))


def rank_one_update(inverse: FloatArray, clients: IntArray, features: FloatArray) -> FloatArray:
    r"""Change H_k^-1 of clients as H_k <- H_k + c_k c_k' asks; return the new H_k^-1 c_k.

    Sherman and Morrison: (H + c c')^-1 = H^-1 - (H^-1 c)(H^-1 c)' / (1 + c' H^-1 c).
    """
    old = np.einsum("kij,kj->ki", inverse[clients], features)
    scale = 1.0 + np.einsum("ki,ki->k", features, old)
    inverse[clients] -= old[:, :, np.newaxis] * old[:, np.newaxis, :] / scale[:, None, None]
    return np.asarray(old / scale[:, np.newaxis])
