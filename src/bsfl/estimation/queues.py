"""Virtual queues that grow by a client's share and are served when it is chosen."""

from dataclasses import dataclass

import numpy as np

from bsfl.estimation.averages import Averages
from bsfl.records import FloatArray, IntArray, RoundContext
from bsfl.state import per_client


@dataclass(slots=True, kw_only=True)
class Queued(Averages):
    r"""Averages and queues D_k <- max(D_k + share_k - [k was chosen], 0) that start at 0.

    A queue nobody serves grows by its share each round, so it is stored as it stood after the
    client was last served, with the number of the client's rounds at that time: O(cohort) a round.
    When shares change because the fleet does, the time since then counts at the new share.
    """

    queue: FloatArray = per_client(0.0)
    queue_round: IntArray = per_client(1)

    def queues(
        self, context: RoundContext, clients: IntArray, share: float | FloatArray
    ) -> FloatArray:
        """Return D_k of clients at the start of this round."""
        waited = context.rounds(clients) - self.queue_round[clients]
        return self.queue[clients] + share * waited

    def serve(self, context: RoundContext, chosen: IntArray, share: float | FloatArray) -> None:
        """Book the selection of clients in the round of the context."""
        served = self.queues(context, chosen, share) + share - 1.0
        self.queue[chosen] = np.maximum(served, 0.0)
        self.queue_round[chosen] = context.rounds(chosen) + np.ones_like(chosen)
