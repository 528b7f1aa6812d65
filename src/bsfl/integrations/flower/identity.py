"""Who is behind a node: names that outlive the node ids, which are new after every restart."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from bsfl import checks
from bsfl.clients import ClientId, clean_id
from bsfl.integrations.flower.replies import is_lost
from bsfl.rounds import Clock

PARTITION_ID = "partition-id"
Identity = Literal["partition-id", "node-id"] | Callable[[Any], ClientId]
"""How clients are named; a function gets what the SuperLink knows of a node (`NodeInfo`)."""

QUIET_S = 15.0
"""How long nothing may be heard from nodes that were asked before they hold up no round."""
QUESTION_LIFETIME_S = 600.0

_LOG = logging.getLogger("flwr")


def check_identity(identity: Identity) -> Identity:
    """Return a way to name clients after checking that it is one."""
    if not callable(identity):
        checks.one_of("identity", identity, (PARTITION_ID, "node-id"))
    return identity


@dataclass(slots=True)
class Batch:
    """Nodes that were asked for their names together, and when one was last asked or heard."""

    active_at: float


@dataclass(frozen=True, slots=True)
class Question:
    """A node that was asked for its name."""

    node: int
    batch: Batch


class Directory:
    """The clients behind the nodes. Every node is asked once; the answer is kept."""

    def __init__(self, identity: Identity, clock: Clock) -> None:
        self.identity = identity
        self._clock = clock
        self._client_of: dict[int, ClientId] = {}  # in the order in which nodes came
        self._asked: dict[str, Question] = {}  # by message

    def clients(self, online: Collection[int]) -> dict[ClientId, int]:
        """Return the node of every client that is online: the latest, if it was restarted."""
        return {client: node for node, client in self._client_of.items() if node in online}

    def n_named(self, online: Collection[int]) -> int:
        """Return how many nodes that are online have a name, be it one that others have, too."""
        return sum(node in online for node in self._client_of)

    def is_waiting(self, online: Collection[int]) -> bool:
        """Return whether a node that is online may be about to say who it is."""
        quiet_since = self._clock.monotonic() - QUIET_S
        return any(
            question.node in online and question.batch.active_at > quiet_since
            for question in self._asked.values()
        )

    def update(self, grid: Grid, online: Collection[int]) -> None:
        """Collect answers and find out who the newcomers are."""
        self._hear(grid)
        known = self._client_of.keys() | {question.node for question in self._asked.values()}
        strangers = [node for node in online if node not in known]
        if not strangers:
            return
        if self.identity == PARTITION_ID:
            self._ask(grid, strangers)
        elif callable(self.identity):
            wanted = set(strangers)
            for info in grid.get_nodes():
                if info.node_id in wanted:
                    self._client_of[info.node_id] = clean_id(self.identity(info))
        else:
            self._client_of.update((node, name_of(node)) for node in strangers)

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        questions = [
            Message(
                RecordDict({"config": ConfigRecord({"wanted": PARTITION_ID})}),
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
                self._asked[question.metadata.message_id] = Question(node, batch)

    def _hear(self, grid: Grid) -> None:
        """Read the answers that came. A node that cannot tell is known by its node id."""
        if not self._asked:
            return
        silent = []
        for reply in grid.pull_messages(list(self._asked)):
            question = self._asked.pop(reply.metadata.reply_to_message_id)
            question.batch.active_at = self._clock.monotonic()
            node = question.node
            if is_lost(reply):  # asked again, should the node still be there
                continue
            name = None if reply.has_error() else partition_id(reply)
            if name is None:
                silent.append(node)
            self._client_of[node] = name_of(node) if name is None else name
        if silent:
            _LOG.warning(
                "bsfl: %d node(s) do not answer a query with their %s; they are known by their "
                "node id and will be strangers after a restart",
                len(silent),
                PARTITION_ID,
            )


def partition_id(reply: Message) -> str | None:
    """Return the partition id that a reply tells in one of its records, if it does."""
    told = [dict(record) for record in reply.content.config_records.values()]
    told += [dict(record) for record in reply.content.metric_records.values()]
    return next((str(record[PARTITION_ID]) for record in told if PARTITION_ID in record), None)


def name_of(node: int) -> str:
    """Return the name of a client that is known by its node id alone."""
    return f"node-{node}"
