"""Asks nodes who they are, by a QUERY message, if their app can answer it."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from bsfl.integrations.flower.identity import told_name
from bsfl.integrations.flower.wire import is_lost
from bsfl.rounds import Clock

QUIET_S = 15.0
"""How long nothing may be heard from nodes that were asked before they hold up no round."""
QUESTION_LIFETIME_S = 600.0

_LOG = logging.getLogger("flwr")


@dataclass(slots=True)
class Batch:
    """Nodes that were asked for their names together, and when one was last asked or heard."""

    active_at: float


@dataclass(frozen=True, slots=True)
class Question:
    """A node that was asked for its name."""

    node: int
    batch: Batch


class Questions:
    """Every node is asked once. All nodes of a run have the same app.

    Where it is not known whether that app answers queries, one node is asked first; if it cannot
    answer, no other is.

    Attributes:
        key: What is asked for.
        is_answered: Whether the app answers queries; None: not known yet.
    """

    def __init__(self, key: str, clock: Clock, *, is_answered: bool | None) -> None:
        self.key, self.is_answered = key, is_answered
        self._clock = clock
        self._open: dict[str, Question] = {}  # by message

    @property
    def nodes(self) -> set[int]:
        """Nodes that were asked and have not answered."""
        return {question.node for question in self._open.values()}

    def is_waiting(self, online: Collection[int]) -> bool:
        """Return whether a node that is online may be about to say who it is."""
        quiet_since = self._clock.monotonic() - QUIET_S
        return any(
            question.node in online and question.batch.active_at > quiet_since
            for question in self._open.values()
        )

    def ask(self, grid: Grid, nodes: list[int]) -> None:
        """Ask nodes, or only the first while nobody knows whether it can answer."""
        if self.is_answered is None:
            nodes = [] if self.is_waiting(self.nodes) else nodes[:1]
        if not nodes:
            return
        questions = [
            Message(
                RecordDict({"config": ConfigRecord({"wanted": self.key})}),
                dst_node_id=node,
                message_type=MessageType.QUERY,
                ttl=QUESTION_LIFETIME_S,
            )
            for node in nodes
        ]
        sent = set(grid.push_messages(questions))
        batch = Batch(active_at=self._clock.monotonic())
        for question in questions:
            if question.metadata.message_id in sent:
                node = question.metadata.dst_node_id
                self._open[question.metadata.message_id] = Question(node, batch)

    def answers(self, grid: Grid) -> dict[int, Any]:
        """Return what the nodes that answered are called; None for one that cannot tell.

        A node that could not be reached is asked again, should it still be there.
        """
        told: dict[int, Any] = {}
        for reply in grid.pull_messages(list(self._open)) if self._open else ():
            question = self._open.pop(reply.metadata.reply_to_message_id, None)
            if question is None:
                continue
            question.batch.active_at = self._clock.monotonic()
            if is_lost(reply):
                continue
            if self.is_answered is None:
                self.is_answered = not reply.has_error()
                self._say_if_nobody_is_asked()
            told[question.node] = None if reply.has_error() else told_name(reply, self.key)
        return told

    def _say_if_nobody_is_asked(self) -> None:
        if not self.is_answered:
            _LOG.warning(
                "bsfl: the ClientApp has no query handler; clients go by their node id until a "
                "training reply tells their %s",
                self.key,
            )
