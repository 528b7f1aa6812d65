"""Rounds for an app with its own loop: a cohort to train, and the summary of its round."""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.checkpoint import StateFile
from bsfl.integrations.flower.federation import Federation
from bsfl.integrations.flower.options import Options
from bsfl.integrations.flower.summary import RoundSummary
from bsfl.rounds import SYSTEM, Clock
from bsfl.scheduler import Scheduler
from bsfl.types import ClientId

_LOG = logging.getLogger("flwr")


@dataclass(slots=True, kw_only=True, eq=False)
class Cohort:
    """The clients of one round.

    Attributes:
        server_round: The round's number, starting at 1.
        nodes: The nodes to send a message to.
        clients: The clients of these nodes, by node.
        summary: The summary of the round; None until it is over.
    """

    server_round: int
    nodes: list[int]
    clients: dict[int, ClientId]
    summary: RoundSummary | None = None
    _run: Federation = field(repr=False)

    def send_and_receive(
        self, messages: list[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send the round's training messages; return the replies once the round is over.

        Replies that can be used come first, then errors. Both are reported to the scheduler.

        Args:
            messages: One to each of the nodes.
            timeout: Seconds after which the round ends; None: the deadline alone decides.
        """
        if self.summary is not None:
            raise InvalidInput(
                f"round {self.server_round} is over; messages of the next round go to its cohort"
            )
        messages = list(messages)
        addressed = sorted(message.metadata.dst_node_id for message in messages)
        if addressed != sorted(self.nodes):
            raise InvalidInput(
                f"one message must go to each of the {len(self.nodes)} nodes of the cohort, got "
                f"{len(messages)} messages to {len(set(addressed) & set(self.nodes))} of them"
            )
        replies, self.summary = self._run.exchange(messages, timeout)
        _LOG.info(self.summary.line())
        return replies


def rounds(
    grid: Grid,
    scheduler: Scheduler,
    *,
    n_rounds: int | None = None,
    state_path: str | os.PathLike[str] | None = None,
    clock: Clock = SYSTEM,
    **options: Any,
) -> Iterator[Cohort]:
    """Yield the cohort of one round after the other.

        for cohort in rounds(grid, Scheduler(cohort_size=25), n_rounds=100, deadline_s=60.0):
            messages = [Message(content, node, "train") for node in cohort.nodes]
            replies = cohort.send_and_receive(messages)

    A round that sends nothing counts as an invitation, and nothing is learned from it.

    Args:
        grid: The federation.
        scheduler: Selects the clients. A file at state_path replaces it if it is new.
        n_rounds: How many rounds; None: no limit.
        state_path: State file of the scheduler, as for `Selected`.
        clock: The server's clock.
        options: identity, leave_after_s, eligible, latency, deadline_s, min_responses,
            over_selection, lifetime_s, min_clients, wait_s and loss_key, as for `Selected`.
    """
    settings = Options(**options)
    settings.check(scheduler)
    if n_rounds is not None:
        validation.natural("n_rounds", n_rounds)
    state = None if state_path is None else StateFile(state_path)
    if state is not None:
        scheduler = state.restored(scheduler)
    return _cohorts(settings.federation(grid, scheduler, None, clock), n_rounds, state)


def _cohorts(run: Federation, n_rounds: int | None, state: StateFile | None) -> Iterator[Cohort]:
    scheduler = run.rounds.scheduler
    for server_round in count(1) if n_rounds is None else range(1, n_rounds + 1):
        nodes = run.select(server_round)
        cohort = Cohort(server_round=server_round, nodes=nodes, clients=dict(run.cohort), _run=run)
        yield cohort
        if cohort.summary is None:
            scheduler.abandon(run.cohort.values())
        if state is not None:
            state.save(scheduler)
