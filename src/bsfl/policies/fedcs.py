"""FedCS: as many clients as the deadline allows, quickest additions first (Nishio 2019)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bsfl import checks
from bsfl.estimation.averages import Averages, believed_latency
from bsfl.records import FloatArray, IntArray, Report, Rng, RoundContext
from bsfl.requirements import keep_known, must_cover


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FedCS:
    r"""Fill the round with the quickest clients until the deadline is used up.

    Add the client that prolongs the round least, while the round ends before the deadline.

    Clients train side by side and then send one after another. A round that takes Theta seconds
    takes max(Theta + upload_k, update_k + upload_k) once client k is added. There may be fewer
    clients in a cohort than wanted.

    Attributes:
        tau_max: Deadline of the round in seconds.
        latency_s: Seconds from the invitation until each client may send (update_k), by dense
            index; when None, the mean of what was seen, 0 for a client never chosen.
        upload_s: Seconds that each client sends for; when None, 0: clients do not wait for each
            other, or `latency_s` holds it already.
        candidates: How many random available clients are considered in a round; all when None.
    """

    REMEMBERS_BY: ClassVar = ("tau_max",)
    chooses_fewer: ClassVar[bool] = True
    tuning: ClassVar = ({"candidates": 50}, {"candidates": 100}, {"candidates": 200})
    example: ClassVar = {"tau_max": 20.0}

    tau_max: float
    latency_s: FloatArray | None = field(default=None, repr=False)
    upload_s: FloatArray | None = field(default=None, repr=False)
    candidates: int | None = None

    def __post_init__(self) -> None:
        checks.seconds("tau_max", self.tau_max)
        keep_known(self, "latency_s", "upload_s")
        if self.candidates is not None:
            checks.natural("candidates", self.candidates)

    def init(self, n_clients: int) -> Averages:
        must_cover(self, n_clients, "latency_s", "upload_s")
        return Averages.of(n_clients)

    def select(self, state: Averages, context: RoundContext, rng: Rng) -> IntArray:
        n_asked = len(context.available) if self.candidates is None else self.candidates
        clients = rng.permutation(context.available)[:n_asked]
        update_s, m = self.latencies(state, clients), context.cohort_size
        upload_s = np.zeros(len(clients)) if self.upload_s is None else self.upload_s[clients]
        return np.sort(clients[greedy_cohort(update_s, upload_s, m=m, deadline_s=self.tau_max)])

    def observe(self, state: Averages, context: RoundContext, report: Report) -> None:
        """Update counts and mean latencies, kept as 1 - tau / tau_max so that silence is slow."""
        state.learn(report, 1.0 - believed_latency(report, self.tau_max) / self.tau_max)

    def latencies(self, state: Averages, clients: IntArray) -> FloatArray:
        """Return update_k: as told, or as learned so far."""
        if self.latency_s is not None:
            return self.latency_s[clients]
        learned = self.tau_max * (1.0 - state.mean[clients])
        return np.where(state.selected[clients] == 0, 0.0, learned)


def greedy_cohort(
    update_s: FloatArray, upload_s: FloatArray, *, m: int, deadline_s: float
) -> IntArray:
    r"""Return the positions that the greedy rule takes, at most m, in the order taken.

    Start with Theta = 0. Take the client with the smallest max(upload, update + upload - Theta),
    add that to Theta, and go on while Theta < deadline. Whoever does not fit ends the search:
    all others would prolong the round even more.

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
    """Return a superset of the clients that the greedy rule could take, about m log(K/m) of them.

    Whoever has m others that are done no later and send no longer is never the m-th best. By
    rising `done`, a client is left out if its upload is no shorter than the m-th shortest of those
    before; these are looked at in blocks, each as long as all before it together.
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
