"""The pool: what belongs to the clients, whichever job trains on them."""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from bsfl._core.state import ROUNDS, ClientState, Column, StateView, per_client
from bsfl.errors import InvalidInput
from bsfl.types import FAILED, MAX_FEATURE, BoolArray, FloatArray, IntArray, RoundReport, pick
from bsfl.validation import LARGEST

MIN_SAMPLES = 1e-6
"""Smallest number of samples that can be registered; a share of a client's data stays above 0."""
PRIOR_RESPONSES, PRIOR_MISSES = 9.0, 1.0
"""Responses and misses that are assumed of the whole population before the first."""
PRIOR_INVITATIONS = 5.0
"""Invitations that the population's response rate is worth beside a client's own few."""
PRIOR_VARIANCE, PRIOR_FREEDOM = 0.05, 4.0
"""Variance of a client's log latencies before any were seen, and the responses it is worth."""
SHRINKAGE = 4.0
"""Responses that the population's variance is worth beside a client's own."""
MAX_LOG_LATENCY = 30.0
"""Largest size of the logarithm of a latency."""
Z_80 = NormalDist().inv_cdf(0.9)
"""Standard deviations around the mean of a normal distribution that hold 80 % of its values."""


@dataclass(slots=True, kw_only=True)
class PoolState(ClientState):
    """Membership, attributes and response statistics; rows beyond `n` are spare.

    Attributes:
        n: How many clients have a row.
        n_members: How many of them are members now.
        n_responded, n_missed: Sums of the columns of these names.
        member, online: Whether each client is a member, and can be selected now.
        last_seen: The round in which a client that is offline was online last, or joined.
        samples, quality: How much data it holds (NaN: unknown), and how good that data is.
        features: What may predict its speed, [client, feature], NaN where unknown.
        responded, missed: Invitations that it responded to, and that it did not.
        late, failed: Those of the responses that came after their round had closed, and those of
            the misses that were failures.
        n_timed, log_latency, spread: How many latencies are known, the mean of their logarithms
            and the sum of squared deviations from it.
    """

    n: int = 0
    n_members: int = 0
    n_responded: int = 0
    n_missed: int = 0
    member: BoolArray = per_client(False)
    online: BoolArray = per_client(False)
    last_seen: IntArray = per_client(0, high=ROUNDS, narrow=True)
    samples: FloatArray = per_client(np.nan, low=MIN_SAMPLES, high=LARGEST)
    quality: FloatArray = per_client(1.0, low=MIN_SAMPLES, high=1.0)
    features: FloatArray = per_client(np.nan, low=-MAX_FEATURE, high=MAX_FEATURE)
    responded: IntArray = per_client(0, narrow=True)
    missed: IntArray = per_client(0, narrow=True)
    late: IntArray = per_client(0, narrow=True)
    failed: IntArray = per_client(0, narrow=True)
    n_timed: IntArray = per_client(0, narrow=True)
    log_latency: FloatArray = per_client(0.0, -MAX_LOG_LATENCY, MAX_LOG_LATENCY, narrow=True)
    spread: FloatArray = per_client(0.0, low=0.0, narrow=True)

    @classmethod
    def of(cls, n_clients: int, n_features: int = 0, **others: Any) -> Self:
        """Return fresh rows."""
        features = np.full((n_clients, n_features), np.nan)
        return super(PoolState, cls).of(n_clients, features=features, **others)

    def check(self) -> None:
        """Check that no part counts more than the whole, and that latencies can be predicted."""
        n = self.n
        if not 0 <= n <= len(self.member) or np.any(self.online[:n] & ~self.member[:n]):
            raise InvalidInput("a client is online that is not a member")
        more = np.maximum(self.late, self.n_timed) > self.responded
        if np.any(more | (self.failed > self.missed)):
            raise InvalidInput("more responses or misses are counted in part than in all")
        if np.any(self.spread > (2.0 * MAX_LOG_LATENCY) ** 2 * np.maximum(self.n_timed - 1.0, 0.0)):
            raise InvalidInput("spread is wider than latencies can be")
        if self.n_members != np.count_nonzero(self.member[: self.n]):
            raise InvalidInput("n_members does not count the members")

    def record(self, report: RoundReport, *, is_late: bool) -> None:
        """Count the results of invitations and update the latency moments."""
        responded: BoolArray = report.responded
        clients = report.clients[responded]
        if len(clients) < len(responded):
            self.failed[report.clients[report.outcome == FAILED]] += 1
            self.missed[report.clients[~responded]] += 1
        if is_late:
            self.late[clients] += 1
        n = self.n_timed[clients] + 1
        step = np.log(report.latency_s[responded]) - self.log_latency[clients]
        self.n_timed[clients] = n
        self.log_latency[clients] += step / n
        self.spread[clients] += step**2 * (n - 1) / n
        self.responded[clients] += 1
        self.n_responded += len(clients)
        self.n_missed += len(responded) - len(clients)


class PoolView(StateView):
    """What policies and reports read of the pool: columns of PoolState, read-only."""

    responded: IntArray = Column()  # type: ignore[assignment]
    missed: IntArray = Column()  # type: ignore[assignment]
    late: IntArray = Column()  # type: ignore[assignment]
    failed: IntArray = Column()  # type: ignore[assignment]
    n_timed: IntArray = Column()  # type: ignore[assignment]
    log_latency: FloatArray = Column()  # type: ignore[assignment]

    @cached_property
    def members(self) -> BoolArray | None:
        """Whether each client is a member now; None: all are."""
        return None if self.n_members == self._n else self.column("member").copy()

    @cached_property
    def n_members(self) -> int:
        """K, how many clients are members now."""
        if self._n == self._state.n:
            return int(self._state.n_members)
        return int(np.count_nonzero(self._state.member[: self._n]))

    @cached_property
    def samples(self) -> FloatArray | None:
        """n_k, NaN where unknown; None: no client's samples are known."""
        samples = self.column("samples")
        return None if np.isnan(samples).all() else samples

    @cached_property
    def quality(self) -> FloatArray | None:
        """q_k in (0, 1]; None: 1 for every client."""
        quality = self.column("quality")
        return None if np.all(quality == 1.0) else quality

    @property
    def features(self) -> FloatArray | None:
        """What may predict each client's speed, [client, feature]; None: nothing is known."""
        return self.column("features") if self._state.features.shape[1] else None

    @cached_property
    def sizes(self) -> FloatArray:
        """n_k of every member, 0 for a client that left; an error if one is unknown."""
        self.check_sizes()
        return self.known_sizes

    @cached_property
    def known_sizes(self) -> FloatArray:
        """n_k of every member, 0 where it is unknown and for a client that left."""
        sizes = np.nan_to_num(self.column("samples"))
        return sizes if self.members is None else np.where(self.members, sizes, 0.0)

    def check_sizes(self) -> None:
        """Check that the samples of every member are known."""
        samples = self.samples
        if samples is None:
            raise InvalidInput("this policy needs every client's samples; register them first")
        unknown = np.isnan(samples)
        if self.members is not None:
            unknown &= self.members
        if unknown.any():
            raise InvalidInput(
                f"this policy needs every client's samples, {np.count_nonzero(unknown):,} of "
                f"{self.n_members:,} clients have none; register them first"
            )

    @cached_property
    def significance(self) -> FloatArray:
        """d_k = q_k n_k of every member, 0 for a client that left."""
        return self.sizes if self.quality is None else self.sizes * self.quality

    @cached_property
    def total_size(self) -> float:
        """Sum of n_k over the members; 1 if there are none."""
        return float(self.sizes.sum()) or 1.0

    def data_shares(self, clients: IntArray) -> FloatArray:
        """Return p_k = n_k / sum n of clients, 1 / K where no sizes are registered."""
        if self.samples is None:
            return np.full(len(clients), 1.0 / max(self.n_members, 1))
        return np.asarray(self.sizes[clients] / self.total_size)

    def response_rate(self, clients: IntArray) -> FloatArray:
        """Return each client's probability to respond: its own record shrunk to the population's.

        >>> PoolView(PoolState.of(2), 2).response_rate(np.arange(2))
        array([0.9, 0.9])
        """
        pool = self._state
        n_responded, n_missed = pool.n_responded + PRIOR_RESPONSES, pool.n_missed + PRIOR_MISSES
        usual = n_responded / (n_responded + n_missed)
        responded, missed = pick(self.responded, clients), pick(self.missed, clients)
        rate = (responded + PRIOR_INVITATIONS * usual) / (responded + missed + PRIOR_INVITATIONS)
        return np.asarray(rate)

    def latencies(
        self, clients: IntArray | slice = slice(None)
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the median latency of clients and the 80 % interval of the next one.

        NaN of a client that never responded.
        """
        n_timed, spread = self.n_timed, self.column("spread")
        variance = pooled_variance(n_timed, spread)
        mean = np.where(n_timed[clients] > 0, self.log_latency[clients], np.nan)
        return latency_interval(n_timed[clients], mean, spread[clients], variance)


def pooled_variance(n_timed: IntArray, spread: FloatArray) -> float:
    """Return the variance of log latencies within clients, over all of them."""
    freedom = np.maximum(n_timed - 1, 0)
    total = PRIOR_FREEDOM * PRIOR_VARIANCE + spread.sum()
    return float(total / (PRIOR_FREEDOM + freedom.sum()))


def latency_interval(
    n_timed: IntArray, mean: FloatArray, spread: FloatArray, variance: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the median latency of each client and the 80 % interval of its next response.

    Logarithms are taken as normal: exp(mean -+ 1.28 sigma sqrt(1 + 1/n)), where a client's sigma
    is shrunk to that of all clients.

    Args:
        n_timed, mean, spread: Moments of each client's log latencies, as in PoolState.
        variance: Their `pooled_variance`.
    """
    freedom = np.maximum(n_timed - 1, 0)
    sigma2 = (SHRINKAGE * variance + spread) / (SHRINKAGE + freedom)
    half = Z_80 * np.sqrt(sigma2 * (1.0 + 1.0 / np.maximum(n_timed, 1)))
    return np.exp(mean), np.exp(mean - half), np.exp(mean + half)
