"""A custom selection policy: MyPolicy.

    bsfl run phones --policy my_policy.py:MyPolicy
    bsfl run phones --policy my_policy.py:MyPolicy --set patience=5

or, in Python, bsfl.compare([MyPolicy(), "pace", "random"], "phones").
"""

from dataclasses import dataclass

import numpy as np

from bsfl import IntArray, Policy, Rng, RoundContext, RoundReport


@dataclass
class MyPolicyState:
    """What the policy learns. Only arrays with a row per client, and numbers, are allowed."""

    invitations: IntArray


@dataclass(frozen=True, kw_only=True)
class MyPolicy(Policy):
    """Select the clients with the fewest invitations so far.

    `bsfl policies` shows the first line. A policy is a frozen record of its settings; everything
    that it learns is in its state.

    Attributes:
        patience: Rounds in which all clients are selected at random first.
    """

    patience: int = 0

    def init(self, n_clients: int) -> MyPolicyState:
        """Return the state before the first round. Clients are numbers from 0."""
        return MyPolicyState(np.zeros(n_clients, dtype=np.int64))

    def select(self, state: MyPolicyState, context: RoundContext, rng: Rng) -> IntArray:
        """Return the cohort: sorted, distinct, from context.available; change nothing.

        context.round is the round, context.n_invited the number of clients to invite. context.pool
        and context.task hold statistics that are kept for every policy, such as
        context.pool.samples (data sizes, if known) and context.task.invitations. All randomness
        comes from rng.
        """
        available = context.available
        key = (
            np.zeros(len(available))
            if context.round <= self.patience
            else state.invitations[available]
        )
        order = np.lexsort((rng.random(len(available)), key))  # ties at random
        return np.sort(available[order[: context.n_invited]])

    def observe(self, state: MyPolicyState, context: RoundContext, report: RoundReport) -> None:
        """Update the state from responses; only this method may change it.

        report.clients are the reported clients; report.latency_s, report.outcome (0 ok, 1 timeout,
        2 failed), report.loss and report.samples have one value for each of them, and
        report.responded is True for those that responded. The first report of a round has its whole
        cohort in report.invited. All may be empty.
        """
        state.invitations[report.invited] += 1
