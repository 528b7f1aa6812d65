"""Grids that show a part of the federation, send another way, or run on a virtual clock."""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import DEFAULT_TTL, Message
from flwr.serverapp import Grid

from bsfl.errors import InvalidInput
from bsfl.integrations.flower.simulated import Simulated
from bsfl.rounds import Clock, pause_s
from bsfl.scheduling.clients import ClientId

if TYPE_CHECKING:  # where these live is Flower's own business
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

MOST_LOOKS = 20
"""How often a strategy may look at its cohort in one round before it is stopped."""

Messages = Iterable[Message]
Exchange = Callable[[list[Message], float | None], list[Message]]
"""Sends messages and returns the replies that came before a timeout in seconds."""

_LOG = logging.getLogger("flwr")


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


class VirtualClock:
    """Time that passes when somebody sleeps, at most until the next reply."""

    def __init__(self) -> None:
        self.now = 0.0
        self.next_at: Callable[[], float] = lambda: math.inf

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now = min(self.now + seconds, self.next_at())


@dataclass(slots=True, kw_only=True)
class Held:
    """A message on its way.

    Attributes:
        client: To whom.
        sent_at: When, on the virtual clock.
        reply: The reply; None until it has come in real time.
        latency_s: Simulated seconds it takes, infinity if it never comes.
        fault: Why nobody knows how long it takes.
    """

    client: ClientId
    sent_at: float
    reply: Message | None = None
    latency_s: float = math.inf
    fault: str | None = None

    @property
    def arrives_at(self) -> float:
        return self.sent_at + self.latency_s


class VirtualGrid(GridAround):
    """Waits for all replies in real time, and hands them out in simulated time.

    Attributes:
        clock: The virtual clock.
    """

    def __init__(
        self, grid: Grid, source: Simulated, client_of: Callable[[int], ClientId], wall: Clock
    ) -> None:
        super().__init__(grid)
        self.clock = VirtualClock()
        self.clock.next_at = self._next_at
        self._source, self._client_of, self._wall = source, client_of, wall
        self._held: dict[str, Held] = {}
        self._given: dict[str, Held] = {}
        self._n_trained: dict[ClientId, int] = {}

    def push_messages(self, messages: Messages) -> Iterable[str]:
        """Send messages that live as long as they need in real time."""
        messages = list(messages)
        for message in messages:
            message.metadata.ttl = DEFAULT_TTL
        sent = set(self.grid.push_messages(messages))
        for message in messages:
            if message.metadata.message_id in sent:
                client = self._client_of(message.metadata.dst_node_id)
                held = Held(client=client, sent_at=self.clock.now)
                self._held[message.metadata.message_id] = held
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> Messages:
        """Return the replies that have come by now, in the order in which they did."""
        wanted = set(message_ids)
        self._held = {token: held for token, held in self._held.items() if token in wanted}
        self._wait()
        now = self.clock.now
        due = {token: held for token, held in self._held.items() if held.arrives_at <= now}
        self._given = due
        for token in due:
            del self._held[token]
        in_order = sorted(due.values(), key=lambda held: held.arrives_at)
        return [held.reply for held in in_order if held.reply is not None]

    def latency(self, client: ClientId, reply: Message, round_trip_s: float) -> float:
        """Return the simulated seconds of a reply that was just handed out."""
        held = self._given[reply.metadata.reply_to_message_id]
        if held.fault is not None:
            raise InvalidInput(held.fault)
        return held.latency_s

    def _next_at(self) -> float:
        """When the next reply arrives that has not yet."""
        coming = (held.arrives_at for held in self._held.values())
        return min((at for at in coming if at > self.clock.now), default=math.inf)

    def _wait(self) -> None:
        """Wait in real time until it is known of every message when its reply arrives."""
        start = self._wall.monotonic()
        while missing := [token for token, held in self._held.items() if self._is_open(held)]:
            for reply in self.grid.pull_messages(missing):
                held = self._held.get(reply.metadata.reply_to_message_id)
                if held is not None and self._is_open(held):
                    self._book(held, reply)
            waited_s = self._wall.monotonic() - start
            if waited_s >= self._source.patience_s:
                silent = [
                    self._held[token] for token in missing if self._is_open(self._held[token])
                ]
                self._give_up(silent, waited_s)
            elif any(self._is_open(self._held[token]) for token in missing):
                self._wall.sleep(pause_s(waited_s))

    @staticmethod
    def _is_open(held: Held) -> bool:
        return held.reply is None and held.fault is None

    def _book(self, held: Held, reply: Message) -> None:
        """Note a reply and when it arrives: one without a time at once."""
        held.reply, held.latency_s = reply, 0.0
        if reply.has_error():
            return
        n_before = self._n_trained.get(held.client, 0)
        self._n_trained[held.client] = n_before + 1
        try:
            held.latency_s = self._source.of(held.client, reply, n_before)
        except InvalidInput as error:
            held.fault = str(error)

    def _give_up(self, silent: list[Held], waited_s: float) -> None:
        for held in silent:
            held.fault = "never answered"
        if silent:
            _LOG.warning(
                "bsfl: %d clients have not answered in %.0f s of real time and are taken to be "
                "silent, among them %r",
                len(silent),
                waited_s,
                silent[0].client,
            )
