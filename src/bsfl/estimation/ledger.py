"""What the server counts of its clients whatever the policy: chances to take part, and answers."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.estimation.lognormal import FIRST_GUESS, SHRINKAGE
from bsfl.records import FAILED, LATE, BoolArray, FloatArray, IntArray, Report, pick
from bsfl.state import ClientState, number, per_client

PRIOR = 9.0, 1.0
"""Answers and misses that are supposed of a fleet before the first."""
GUESS = FIRST_GUESS[1]
"""(weight, variance) of a client's latencies before the fleet has shown any."""
WIDEST = 30.0
"""No logarithm of a latency is larger, or smaller."""
EIGHT_OF_TEN = NormalDist().inv_cdf(0.9)
STRENGTH = 5.0
"""Invitations that the fleet's own chance is worth beside a client's few."""
HEARD = 0.1
"""Part of its fair number of answers in which a client shall be heard, so that it is known."""


@dataclass(slots=True, kw_only=True)
class Ledger(ClientState):
    """Chances and answers of every client.

    Attributes:
        opportunity: e_k, its fair number of answers: the sum of min(1, m / |A|) over the rounds in
            which it was one of the available A. Who was away is owed nothing for that time.
        answered, missed: Invitations that it answered, and that it did not answer in time.
        late, failed: Those of the answers that came when their round was over, and those of the
            misses that were failures.
        last_chosen: The round in which it was chosen last; 0: never.
        n_timed, log_latency, spread: How many latencies it showed, the mean of their logarithms
            and the sum of squared deviations from it.
        n_answered, n_missed: The same of the whole fleet.
        last_chance: Mean chance to answer of the last cohort whose size was found by it.
    """

    opportunity: FloatArray = per_client(0.0, low=0.0, high=checks.LARGEST)
    answered: IntArray = per_client(0, narrow=True)
    missed: IntArray = per_client(0, narrow=True)
    late: IntArray = per_client(0, narrow=True)
    failed: IntArray = per_client(0, narrow=True)
    last_chosen: IntArray = per_client(0, narrow=True)
    n_timed: IntArray = per_client(0, narrow=True)
    log_latency: FloatArray = per_client(0.0, low=-WIDEST, high=WIDEST, narrow=True)
    spread: FloatArray = per_client(0.0, low=0.0, narrow=True)
    n_answered: int = 0
    n_missed: int = 0
    last_chance: float = number(PRIOR[0] / sum(PRIOR), low=0.01, high=1.0)

    def check(self) -> None:
        """Check that no part counts more than the whole, and that latencies can be judged."""
        parts = (
            (self.late, self.answered),
            (self.failed, self.missed),
            (self.n_timed, self.answered),
        )
        if any(np.any(part > whole) for part, whole in parts):
            raise InvalidInput("more answers or misses are counted in part than in all")
        if np.any(self.spread > (2.0 * WIDEST) ** 2 * self.n_timed):
            raise InvalidInput("spread is wider than latencies can be")

    def offer(self, available: IntArray, quota: int) -> None:
        """Book a round in which `quota` of the available clients could take part."""
        share = min(1.0, quota / max(len(available), 1))
        if len(available) == len(self.opportunity):
            self.opportunity += share
        else:
            self.opportunity[available] += share

    def invite(self, cohort: IntArray, t: int) -> None:
        """Book who was chosen in a round."""
        self.last_chosen[cohort] = t

    def hear(self, report: Report) -> None:
        """Book what became of invitations."""
        answered: BoolArray = report.answered
        if report.outcome.any():  # not all answered in time
            self.late[report.clients[report.outcome == LATE]] += 1
            self.failed[report.clients[report.outcome == FAILED]] += 1
            self.missed[report.clients[~answered]] += 1
        who, values = report.clients[answered], np.log(report.latency[answered])
        n, step = self.n_timed[who] + 1, values - self.log_latency[who]
        self.n_timed[who] = n
        self.log_latency[who] += step / n
        self.spread[who] += step**2 * (n - 1) / n
        self.answered[who] += 1
        self.n_answered += len(who)
        self.n_missed += len(answered) - len(who)

    def latencies(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what each client usually takes, and from when to when 8 of 10 answers come.

        Logarithms are taken for normal: exp(mean -+ 1.28 sigma sqrt(1 + 1/n)), where a client's
        sigma is steadied by the fleet's as in bsfl.estimation.lognormal. NaN of one that never
        answered.
        """
        freedom = np.maximum(self.n_timed - 1, 0)
        noise = (GUESS[0] * GUESS[1] + self.spread.sum()) / (GUESS[0] + freedom.sum())
        sigma2 = (SHRINKAGE * noise + self.spread) / (SHRINKAGE + freedom)
        known = self.n_timed > 0
        half = EIGHT_OF_TEN * np.sqrt(sigma2 * (1.0 + 1.0 / np.maximum(self.n_timed, 1)))
        middle = np.where(known, self.log_latency, np.nan)
        low, high = middle - half, middle + half
        return np.exp(middle), np.exp(low), np.exp(high)

    def shares(self) -> FloatArray:
        """Return each client's answers in the model over its fair number; NaN: it had no chance."""
        fair = np.where(self.opportunity > 0, self.opportunity, np.nan)
        return np.asarray((self.answered - self.late) / fair)

    def in_vain(self, clients: IntArray) -> BoolArray:
        """Return whether more answers of each client came too late than entered the model.

        Once is no habit.
        """
        late = pick(self.late, clients)
        return np.asarray((late > 1) & (2 * late > pick(self.answered, clients)))

    def absence(self, clients: IntArray) -> FloatArray:
        """Return how much each client is missed in the model."""
        kept = pick(self.answered, clients) - pick(self.late, clients)
        return absence(pick(self.opportunity, clients), kept.astype(np.float64))

    def chance(self, clients: IntArray) -> FloatArray:
        """Return s_k, the chance that each client answers in time: its own record and the fleet's.

        >>> ledger = Ledger.of(2)
        >>> ledger.chance(np.arange(2))
        array([0.9, 0.9])
        """
        answers, misses = PRIOR
        usual = (self.n_answered + answers) / (self.n_answered + self.n_missed + answers + misses)
        answered, missed = pick(self.answered, clients), pick(self.missed, clients)
        return np.asarray((answered + STRENGTH * usual) / (answered + missed + STRENGTH))


def absence(fair: FloatArray, served: FloatArray) -> FloatArray:
    """Return how much each client is missed: by 1 when it is an answer behind HEARD, then by more.

    That is max(2 d - 1, 0) for one that is d answers behind.
    """
    return np.maximum(2.0 * (HEARD * fair - served) - 1.0, 0.0)
