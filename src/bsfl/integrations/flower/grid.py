"""Grids that show a strategy a part of the federation, or send its messages another way."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flwr.app import Message
from flwr.serverapp import Grid

from bsfl.errors import InvalidInput

if TYPE_CHECKING:  # where these live is Flower's own business
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

MOST_LOOKS = 20
"""How often a strategy may look at its cohort in one round before it is stopped."""

Messages = Iterable[Message]
Exchange = Callable[[list[Message], float | None], list[Message]]
"""Sends messages and returns the replies that came before a timeout in seconds."""


class GridAround(Grid):
    """A grid that does what another one does; the others here change one thing."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def set_run(self, run: "Run") -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> "Run":
        return self.grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self.grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def get_nodes(self) -> "Iterable[NodeInfo]":
        return self.grid.get_nodes()

    def push_messages(self, messages: Messages) -> Iterable[str]:
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Messages:
        return self.grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Messages, *, timeout: float | None = None) -> Messages:
        return self.grid.send_and_receive(messages, timeout=timeout)


class CohortGrid(GridAround):
    """The grid a strategy sees when it invites: nobody but the cohort is connected."""

    def __init__(self, grid: Grid, nodes: Iterable[int]) -> None:
        super().__init__(grid)
        self.nodes = list(nodes)
        self._n_looks = 0

    def get_node_ids(self) -> Iterable[int]:
        """Return the cohort; a strategy that waits for it to grow is told that it never will."""
        self._n_looks += 1
        if self._n_looks > MOST_LOOKS:
            raise InvalidInput(
                f"the strategy waits for more than the {len(self.nodes)} nodes that it is given "
                "in this round; lower the number of nodes that it wants"
            )
        return list(self.nodes)

    def get_nodes(self) -> "Iterable[NodeInfo]":
        chosen = set(self.get_node_ids())
        return [node for node in self.grid.get_nodes() if node.node_id in chosen]


class ExchangeGrid(GridAround):
    """The grid of a strategy's loop: training and evaluation go another way, the rest as usual."""

    def __init__(self, grid: Grid, *, train: Exchange, evaluate: Exchange) -> None:
        super().__init__(grid)
        self._ways = {"train": train, "evaluate": evaluate}

    def send_and_receive(self, messages: Messages, *, timeout: float | None = None) -> Messages:
        messages = list(messages)
        kinds = {kind(message) for message in messages}
        way = self._ways.get(kinds.pop()) if len(kinds) == 1 else None
        if way is not None:
            return way(messages, timeout)
        return self.grid.send_and_receive(messages, timeout=timeout) if messages else []


def kind(message: Message) -> str:
    """Return what a message asks a client to do."""
    return message.metadata.message_type.partition(".")[0]
