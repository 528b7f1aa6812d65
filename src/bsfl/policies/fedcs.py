"""FedCS: as many clients as the deadline allows, shortest additions first (Nishio 2019)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import validation
from bsfl.estimators.moments import Averages, censored_latency
from bsfl.policy import Policy, check_covers, freeze_arrays
from bsfl.types import FloatArray, IntArray, Rng, RoundContext, RoundReport


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FedCS(Policy):
    r"""Fill the round with the fastest clients until the deadline is used up.

    Add the client that prolongs the round least, while the round ends before the deadline.

    Clients train in parallel and upload one after another. A round that takes Theta seconds takes
    max(Theta + upload_k, update_k + upload_k) once client k is added. A cohort may be smaller than
    n_invited.

    >>> from bsfl import Scheduler
    >>> policy = FedCS(tau_max=10.0, latency_s=[1.0, 2.0, 9.0], upload_s=[4.0, 4.0, 4.0])
    >>> Scheduler(policy, cohort_size=3).select(["ann", "bob", "cem"])  # 5 s, 9 s, 13 s
    ['ann', 'bob']

    Attributes:
        tau_max: Deadline of the round in seconds.
        latency_s: Seconds from the invitation until each client can upload (update_k), by dense
            index; None: the mean observed latency, 0 for an unseen client.
        upload_s: Seconds that each client's upload takes, by dense index; None: 0, because clients
            do not wait for each other or `latency_s` includes the upload.
        candidates: How many random available clients are considered in a round; None: all.
    """

    state_keys: ClassVar = ("tau_max",)
    may_select_fewer: ClassVar[bool] = True
    search_space: ClassVar = ({"candidates": 50}, {"candidates": 100}, {"candidates": 200})
    example: ClassVar = {"tau_max": 20.0}

    tau_max: float
    latency_s: FloatArray | None = field(default=None, repr=False)
    upload_s: FloatArray | None = field(default=None, repr=False)
    candidates: int | None = None

    def __post_init__(self) -> None:
        validation.seconds("tau_max", self.tau_max)
        freeze_arrays(self, "latency_s", "upload_s")
        if self.candidates is not None:
            validation.natural("candidates", self.candidates)

    def init(self, n_clients: int) -> Averages:
        check_covers(self, n_clients, "latency_s", "upload_s")
        return Averages.of(n_clients)

    def select(self, state: Averages, context: RoundContext, rng: Rng) -> IntArray:
        n_candidates = len(context.available) if self.candidates is None else self.candidates
        clients = rng.permutation(context.available)[:n_candidates]
        update_s, m = self.latencies(state, context, clients), context.n_invited
        upload_s = np.zeros(len(clients)) if self.upload_s is None else self.upload_s[clients]
        return np.sort(clients[greedy_cohort(update_s, upload_s, m=m, deadline_s=self.tau_max)])

    def observe(self, state: Averages, context: RoundContext, report: RoundReport) -> None:
        """Update mean latencies, stored as 1 - tau / tau_max so that no response means tau_max."""
        state.learn(report, 1.0 - censored_latency(report, self.tau_max) / self.tau_max)

    def latencies(self, state: Averages, context: RoundContext, clients: IntArray) -> FloatArray:
        """Return update_k: the setting, or what was learned so far."""
        if self.latency_s is not None:
            return self.latency_s[clients]
        learned = self.tau_max * (1.0 - state.mean[clients])
        return np.where(context.task.invitations[clients] == 0, 0.0, learned)


def greedy_cohort(
    update_s: FloatArray, upload_s: FloatArray, *, m: int, deadline_s: float
) -> IntArray:
    r"""Return the positions that the greedy rule adds, at most m, in the order of addition.

    Start with Theta = 0. Add the client with the smallest max(upload, update + upload - Theta),
    add that to Theta, and repeat while Theta < deadline. The first client that does not fit ends
    the search: all others would prolong the round even more.

    Departure: the first client is taken even if it does not fit, so that no round is empty.
    """
    done_s = update_s + upload_s
    left = _undominated(done_s, upload_s, m)
    theta = 0.0
    taken: list[int] = []
    while len(taken) < m and len(left):
        longer = np.maximum(upload_s[left], done_s[left] - theta)
        best = int(np.argmin(longer))
        theta += float(longer[best])
        if taken and theta >= deadline_s:
            break
        taken.append(int(left[best]))
        left = np.delete(left, best)
    return np.array(taken, dtype=np.int64)


def _undominated(done_s: FloatArray, upload_s: FloatArray, m: int) -> IntArray:
    """Return a superset of the clients that the greedy rule could add, about m log(K/m) of them.

    A client is dominated if m others are done no later and upload no longer: it is never among the
    m best. By rising `done`, a client is left out if its upload is no shorter than the m-th
    shortest of those before; these are compared in blocks, each as long as all before it together.
    """
    order = np.argsort(done_s, kind="stable")
    kept = [order[:m]]
    start = m
    while start < len(order):
        limit = np.partition(upload_s[np.concatenate(kept)], m - 1)[m - 1]
        block = order[start : 2 * start]
        kept.append(block[upload_s[block] < limit])
        start *= 2
    return np.concatenate(kept)
