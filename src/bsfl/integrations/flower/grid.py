"""Grids that wrap Flower's: to show a cohort, to redirect messages, to run on a virtual clock."""

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
from bsfl.types import ClientId

if TYPE_CHECKING:  # their modules are not part of Flower's public API
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

MAX_LOOKS = 20
"""How often a strategy may read the node ids of its cohort in one round before it is stopped."""

Messages = Iterable[Message]
Exchange = Callable[[list[Message], float | None], list[Message]]
"""Sends messages and returns the replies that came before a timeout in seconds."""

_LOG = logging.getLogger("flwr")


class GridWrapper(Grid):
    """A grid that forwards every call to another one; each subclass changes one thing."""

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


class CohortGrid(GridWrapper):
    """The grid that a strategy gets for its messages: only the cohort is connected."""

    def __init__(self, grid: Grid, nodes: Iterable[int]) -> None:
        super().__init__(grid)
        self.nodes = list(nodes)
        self._n_looks = 0

    def get_node_ids(self) -> Iterable[int]:
        """Return the cohort; raise InvalidInput if a strategy waits for it to grow."""
        self._n_looks += 1
        if self._n_looks > MAX_LOOKS:
            raise InvalidInput(
                f"the strategy waits for more than the {len(self.nodes)} nodes that it is given "
                "in this round; lower the number of nodes that it requires"
            )
        return list(self.nodes)

    def get_nodes(self) -> "Iterable[NodeInfo]":
        cohort = set(self.get_node_ids())
        return [node for node in self.grid.get_nodes() if node.node_id in cohort]


class ExchangeGrid(GridWrapper):
    """The grid of a strategy's loop: training and evaluation are redirected to these functions."""

    def __init__(self, grid: Grid, *, train: Exchange, evaluate: Exchange) -> None:
        super().__init__(grid)
        self._exchanges = {"train": train, "evaluate": evaluate}

    def send_and_receive(self, messages: Messages, *, timeout: float | None = None) -> Messages:
        messages = list(messages)
        kinds = {kind(message) for message in messages}
        exchange = self._exchanges.get(kinds.pop()) if len(kinds) == 1 else None
        if exchange is not None:
            return exchange(messages, timeout)
        return self.grid.send_and_receive(messages, timeout=timeout) if messages else []


def kind(message: Message) -> str:
    """Return the kind of a message: "train", "evaluate" or "query"."""
    return message.metadata.message_type.partition(".")[0]


class VirtualClock:
    """Time that passes in `sleep` alone, at most until the next reply."""

    def __init__(self) -> None:
        self.now = 0.0
        self.next_at: Callable[[], float] = lambda: math.inf

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now = min(self.now + seconds, self.next_at())


@dataclass(slots=True, kw_only=True)
class SentMessage:
    """A message whose reply has not been delivered in simulated time.

    Attributes:
        client: The client that it was sent to.
        sent_at: When, on the virtual clock.
        reply: The reply; None until it was received in real time.
        latency_s: Simulated seconds until the reply; infinite if there is none.
        fault: Why its latency is unknown; None: it is known, or there is no reply yet.
    """

    client: ClientId
    sent_at: float
    reply: Message | None = None
    latency_s: float = math.inf
    fault: str | None = None

    @property
    def arrives_at(self) -> float:
        return self.sent_at + self.latency_s


class VirtualGrid(GridWrapper):
    """Waits for all replies in real time, and delivers them in simulated time.

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
        self._sent: dict[str, SentMessage] = {}
        self._delivered: dict[str, SentMessage] = {}
        self._n_trained: dict[ClientId, int] = {}

    def push_messages(self, messages: Messages) -> Iterable[str]:
        """Send messages with the lifetime that they need in real time."""
        messages = list(messages)
        for message in messages:
            message.metadata.ttl = DEFAULT_TTL
        pushed = set(self.grid.push_messages(messages))
        for message in messages:
            if message.metadata.message_id in pushed:
                client = self._client_of(message.metadata.dst_node_id)
                sent = SentMessage(client=client, sent_at=self.clock.now)
                self._sent[message.metadata.message_id] = sent
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> Messages:
        """Return the replies that have arrived by now, in the order of their arrival."""
        wanted = set(message_ids)
        self._sent = {token: sent for token, sent in self._sent.items() if token in wanted}
        self._wait()
        now = self.clock.now
        due = {token: sent for token, sent in self._sent.items() if sent.arrives_at <= now}
        self._delivered = due
        for token in due:
            del self._sent[token]
        in_order = sorted(due.values(), key=lambda sent: sent.arrives_at)
        return [sent.reply for sent in in_order if sent.reply is not None]

    def latency(self, client: ClientId, reply: Message, round_trip_s: float) -> float:
        """Return the simulated seconds of a reply that was just delivered."""
        sent = self._delivered[reply.metadata.reply_to_message_id]
        if sent.fault is not None:
            raise InvalidInput(sent.fault)
        return sent.latency_s

    def _next_at(self) -> float:
        """Return when the next reply arrives."""
        arrivals = (sent.arrives_at for sent in self._sent.values())
        return min((at for at in arrivals if at > self.clock.now), default=math.inf)

    def _wait(self) -> None:
        """Wait in real time until the arrival of every reply is known."""
        start = self._wall.monotonic()
        while pending := [token for token, sent in self._sent.items() if self._is_pending(sent)]:
            for reply in self.grid.pull_messages(pending):
                sent = self._sent.get(reply.metadata.reply_to_message_id)
                if sent is not None and self._is_pending(sent):
                    self._record(sent, reply)
            waited_s = self._wall.monotonic() - start
            missing = [
                self._sent[token] for token in pending if self._is_pending(self._sent[token])
            ]
            if waited_s >= self._source.patience_s:
                self._time_out(missing, waited_s)
            elif missing:
                self._wall.sleep(pause_s(waited_s))

    @staticmethod
    def _is_pending(sent: SentMessage) -> bool:
        return sent.reply is None and sent.fault is None

    def _record(self, sent: SentMessage, reply: Message) -> None:
        """Record a reply and its latency; an error arrives at once."""
        sent.reply, sent.latency_s = reply, 0.0
        if reply.has_error():
            return
        n_before = self._n_trained.get(sent.client, 0)
        self._n_trained[sent.client] = n_before + 1
        try:
            sent.latency_s = self._source.of(sent.client, reply, n_before)
        except InvalidInput as error:
            sent.fault = str(error)

    def _time_out(self, missing: list[SentMessage], waited_s: float) -> None:
        for sent in missing:
            sent.fault = "no reply"
        if missing:
            _LOG.warning(
                "bsfl: %d clients have not replied in %.0f s of real time and count as "
                "unresponsive, among them %r",
                len(missing),
                waited_s,
                missing[0].client,
            )
