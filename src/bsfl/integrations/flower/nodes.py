"""The nodes of one run: which are connected, which have left, and which may train."""

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from bsfl.errors import NotEnoughClients
from bsfl.integrations.flower.identity import is_node_id, reported_name
from bsfl.integrations.flower.node_registry import NodeRegistry
from bsfl.rounds import Clock, pause_s
from bsfl.scheduler import Scheduler
from bsfl.types import ClientId

Eligible = Callable[[Any], bool]
"""Whether a node may train; gets what the SuperLink knows of it (`NodeInfo`)."""

_LOG = logging.getLogger("flwr")


class Presence:
    """When each client was connected last.

    Attributes:
        leave_after_s: Seconds after which a client that is not connected leaves; infinite: never.
    """

    def __init__(self, leave_after_s: float | None, clock: Clock) -> None:
        """Start without clients; leave_after_s None: they never leave."""
        self.leave_after_s = math.inf if leave_after_s is None else leave_after_s
        self._clock = clock
        self._seen_at: dict[ClientId, float] = {}
        self._is_first = True

    def absent(
        self, members: Collection[ClientId], connected: Collection[ClientId]
    ) -> list[ClientId]:
        """Return the members that have left, given the clients that are connected now.

        A node id of an earlier run that is not connected when this one starts has left at once.
        """
        now = self._clock.monotonic()
        self._seen_at.update(dict.fromkeys(connected, now))
        absent = []
        for client in members:
            away_s = now - self._seen_at.setdefault(client, now)
            is_outdated = self._is_first and client not in connected and is_node_id(client)
            if away_s >= self.leave_after_s or (is_outdated and self.leave_after_s < math.inf):
                absent.append(client)
        for client in absent:
            self._seen_at.pop(client, None)
        self._is_first = False
        return absent


@dataclass(slots=True, kw_only=True)
class Nodes:
    """The connected nodes. The members of the scheduler follow them.

    Attributes:
        grid: The federation.
        scheduler: Its members are the clients that have not left.
        clock: The server's clock.
        registry: The client names of the nodes.
        presence: When each client was connected last.
        eligible: Whether a node may train; None: all may.
    """

    grid: Grid
    scheduler: Scheduler
    clock: Clock
    registry: NodeRegistry
    presence: Presence
    eligible: Eligible | None = None
    _n_online: int = 0
    _is_warned: set[int] = field(default_factory=set)  # nodes for which eligible failed

    def connected(self) -> dict[ClientId, int]:
        """Return the nodes of the clients that are connected and may train."""
        online = set(self.grid.get_node_ids())
        self._n_online = len(online)
        self.registry.update(self.grid, online)
        clients = self.registry.clients()
        if self.eligible is None:
            return clients
        return {client: node for client, node in clients.items() if self._may_train(node)}

    def _may_train(self, node: int) -> bool:
        assert self.eligible is not None
        try:
            return bool(self.eligible(self.registry.info(node)))
        except Exception as error:  # custom code, on data that a node reported
            if node not in self._is_warned:
                self._is_warned.add(node)
                _LOG.warning(
                    "bsfl: your eligible function failed for node %d (%r); it is not invited",
                    node,
                    error,
                )
            return False

    def wait(
        self,
        busy_nodes: Callable[[], set[int]],
        *,
        min_clients: int,
        min_free: int,
        wait_s: float,
        pause: Callable[[float], None],
        is_settled: Callable[[], bool],
    ) -> dict[ClientId, int]:
        """Return the nodes of all clients that can be invited, as soon as there are enough.

        Args:
            busy_nodes: Receives replies and returns the nodes that are busy.
            min_clients: How many clients must be connected.
            min_free: How many of them must not be busy.
            wait_s: Seconds to wait for them.
            pause: Waits while enough clients are connected and too many of them are busy.
            is_settled: Whether no client is busy that could still become free.
        """
        start, n_before = self.clock.monotonic(), -1
        while True:
            busy = busy_nodes()
            clients = self.connected()
            idle = {client: node for client, node in clients.items() if node not in busy}
            waited_s = self.clock.monotonic() - start
            is_late = waited_s >= wait_s
            is_enough = len(clients) >= min_clients and (is_late or not self.registry.is_waiting())
            if is_enough and len(idle) >= min_free:
                return idle
            if is_late and (len(clients) < min_clients or is_settled()):
                raise NotEnoughClients(
                    f"waited {waited_s:.0f} s (wait_s) for {min_clients} clients (cohort_size, or "
                    f"min_clients), of which at least {min_free} must be free: {self._n_online} "
                    f"nodes are connected, {self.registry.n_named} have a name"
                    f"{self._excluded(len(clients))}, {len(idle)} are free"
                )
            if n_before != (n_before := len(clients)):
                _LOG.info(
                    "bsfl: waiting up to %.0f s; %d of %d nodes can be invited, at least %d must",
                    wait_s,
                    n_before,
                    self._n_online,
                    min_clients,
                )
            (pause if is_enough else self.clock.sleep)(pause_s(waited_s))

    def _excluded(self, n_clients: int) -> str:
        """Return why not all nodes with a name can be invited; empty if they can."""
        n_named, n_distinct = self.registry.n_named, len(self.registry.clients())
        shared = f" ({n_distinct} distinct)" if n_distinct < n_named else ""
        return f"{shared}, {n_clients} are eligible" if n_clients < n_distinct else shared

    def remove_absent(self) -> list[ClientId]:
        """Let clients leave the scheduler that have been away for too long; return them."""
        absent = self.presence.absent(self.scheduler.clients, self.registry.clients())
        if absent:
            self.scheduler.leave(absent)
            self.registry.forget(set(absent))
            _LOG.info(
                "bsfl: %d clients have left after a long absence, among them %r",
                len(absent),
                absent[0],
            )
        return absent

    def rename_from(self, node: int, reply: Message) -> tuple[ClientId, ClientId | None] | None:
        """Give a client the name in its reply; return the old and the new name if it changed.

        What was learned of the client is kept under a name that is new. If the name is that of a
        client that was here before, the old one leaves and that client comes back. The new name is
        None if another node has it.
        """
        key = self.registry.reply_key
        if key is None or not self.registry.may_report_name(node):
            return None
        renamed = self.registry.set_reported_name(node, reported_name(reply, key))
        if renamed is None:
            return None
        before, after = renamed
        is_holder = self.registry.holds(after, node)
        if is_holder and self.scheduler.rename(before, after):
            return renamed
        self.scheduler.leave([before])
        if not is_holder:
            return before, None
        self.scheduler.join([after])
        return before, after
