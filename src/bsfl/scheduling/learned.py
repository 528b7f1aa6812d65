"""What a scheduler has learned of its clients: the policy's state, and chances and answers."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bsfl.estimation.ledger import Ledger
from bsfl.policies import Policy
from bsfl.policies.base import chosen_by
from bsfl.records import BoolArray, IntArray, Report, Rng, RoundContext
from bsfl.solvers import Choice
from bsfl.state import State, reminder, take_over, without


class Learned:
    """The state of a policy and the ledger, which grow, shrink and change together.

    Attributes:
        policy: Whose state it is.
        n_clients: How many clients they have rows for.
        state: What the policy has learned.
        ledger: What the server counts, whatever the policy.
        choice: The last cohort and what it was weighed by; None before the first, and where it is
            not known any more.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.n_clients = 0
        self.state: State = policy.init(0)
        self.ledger = Ledger.of(0)
        self.choice: Choice | None = None

    @classmethod
    def of(cls, policy: Policy, n_clients: int, state: State, ledger: Ledger) -> "Learned":
        """Return what was learned before."""
        learned = cls(policy)
        learned.n_clients, learned.state, learned.ledger = n_clients, state, ledger
        return learned

    def choose(self, context: RoundContext, rng: Rng) -> IntArray:
        """Return the policy's cohort, and keep by what it was weighed; nothing else changes.

        The state that a cohort was chosen by is gone with the first answer. Its u and g are two
        arrays that were computed anyway: keeping them until the next round costs 16 bytes a client
        and no time, and an explanation is right to the last bit. Copying the state, or writing a
        log from which it could be put back, would cost more and explain no better.
        """
        self.choice = chosen_by(self.policy, self.state, context, rng)
        return self.choice.cohort

    def hear(self, context: RoundContext, report: Report) -> None:
        """Learn from a report."""
        self.policy.observe(self.state, context, report)
        self.ledger.hear(report)

    @contextmanager
    def all_or_nothing(self, clients: IntArray) -> Iterator[None]:
        """Put everything back if what follows is refused.

        It may learn of these clients, or make room, or choose; where there are none it learns
        nothing.
        """
        before = self.n_clients, self.state, self.ledger, self.choice
        learning = (self.state, self.ledger) if len(clients) else ()
        put_back = [reminder(it, clients) for it in learning]
        try:
            yield
        except BaseException:
            for undo in put_back:
                undo()
            self.n_clients, self.state, self.ledger, self.choice = before
            raise

    def grow(self, n_clients: int) -> None:
        """Make room for clients that joined."""
        if self.n_clients < n_clients:
            state, ledger = self.policy.init(n_clients), Ledger.of(n_clients)
            take_over(self.state, state, n_clients)
            take_over(self.ledger, ledger, n_clients)
            self.n_clients, self.state, self.ledger = n_clients, state, ledger

    def keep(self, kept: BoolArray) -> None:
        """Forget all clients but those that are kept; some may not have had a row yet."""
        place = np.where(kept, np.cumsum(kept) - 1, -1)
        self.choice = self.choice and self.choice.moved(place)
        kept = kept[: self.n_clients]
        state = without(self.state, kept, self.policy.init)
        ledger = without(self.ledger, kept, Ledger.of)
        self.n_clients, self.state, self.ledger = int(np.count_nonzero(kept)), state, ledger
