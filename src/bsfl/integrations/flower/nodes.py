"""The nodes of one run: who is connected, who has left, and who may train."""

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from bsfl.errors import NotEnoughClients
from bsfl.integrations.flower.directory import Directory
from bsfl.integrations.flower.identity import is_node_id, told_name
from bsfl.rounds import Clock, pause_s
from bsfl.scheduler import Scheduler
from bsfl.scheduling.clients import ClientId

Eligible = Callable[[Any], bool]
"""Whether a node may train; gets what the SuperLink knows of it (`NodeInfo`)."""

_LOG = logging.getLogger("flwr")


class Presence:
    """When each client was last there.

    Attributes:
        leave_after_s: Seconds after which a client that is not connected leaves; None: never.
    """

    def __init__(self, leave_after_s: float | None, clock: Clock) -> None:
        self.leave_after_s = math.inf if leave_after_s is None else leave_after_s
        self._clock = clock
        self._seen_at: dict[ClientId, float] = {}
        self._is_first = True

    def left(self, members: Collection[ClientId], present: Collection[ClientId]) -> list[ClientId]:
        """Return which members of the fleet have left, given who is present now.

        A node id of an earlier run that is not there when this one starts has left at once.
        """
        now = self._clock.monotonic()
        self._seen_at.update(dict.fromkeys(present, now))
        gone = []
        for client in members:
            away_s = now - self._seen_at.setdefault(client, now)
            is_ghost = self._is_first and client not in present and is_node_id(client)
            if away_s >= self.leave_after_s or (is_ghost and self.leave_after_s < math.inf):
                gone.append(client)
        for client in gone:
            self._seen_at.pop(client, None)
        self._is_first = False
        return gone


@dataclass(slots=True, kw_only=True)
class Nodes:
    """Who is connected. It keeps the scheduler's fleet as it is.

    Attributes:
        grid: The federation.
        scheduler: Is told who has left.
        clock: The server's.
        directory: Who is behind the nodes.
        presence: Who has been away for how long.
        eligible: Who may train; None: everybody.
    """

    grid: Grid
    scheduler: Scheduler
    clock: Clock
    directory: Directory
    presence: Presence
    eligible: Eligible | None = None
    _n_online: int = 0
    _refused: set[int] = field(default_factory=set)  # whose eligibility could not be found out

    def look(self) -> dict[ClientId, int]:
        """Return the nodes of the clients that are connected and may train."""
        online = set(self.grid.get_node_ids())
        self._n_online = len(online)
        self.directory.update(self.grid, online)
        clients = self.directory.clients()
        if self.eligible is None:
            return clients
        return {client: node for client, node in clients.items() if self._may_train(node)}

    def _may_train(self, node: int) -> bool:
        assert self.eligible is not None
        try:
            return bool(self.eligible(self.directory.info(node)))
        except Exception as error:  # somebody else's code, about a node that says what it likes
            if node not in self._refused:
                self._refused.add(node)
                _LOG.warning(
                    "bsfl: your eligible function failed for node %d (%r); it is not invited",
                    node,
                    error,
                )
            return False

    def wait(
        self,
        listen: Callable[[], set[int]],
        *,
        min_clients: int,
        min_free: int,
        wait_s: float,
        pause: Callable[[float], None],
        is_settled: Callable[[], bool],
    ) -> dict[ClientId, int]:
        """Return the nodes of all clients that can be invited, as soon as there are enough.

        Args:
            listen: Hears what came in; returns the nodes that are busy.
            min_clients: How many must be connected.
            min_free: How many of them must not be busy.
            wait_s: Seconds to wait for them.
            pause: Waits while there are enough, of whom too many are busy.
            is_settled: Whether nobody is busy for whom waiting would help.
        """
        start, n_before = self.clock.monotonic(), -1
        while True:
            busy = listen()
            clients = self.look()
            idle = {client: node for client, node in clients.items() if node not in busy}
            waited_s = self.clock.monotonic() - start
            is_late = waited_s >= wait_s
            is_there = len(clients) >= min_clients and (is_late or not self.directory.is_waiting())
            if is_there and len(idle) >= min_free:
                return idle
            if is_late and (len(clients) < min_clients or is_settled()):
                raise NotEnoughClients(
                    f"waited {waited_s:.0f} s (wait_s) for {min_clients} clients (cohort_size, or "
                    f"min_clients), of whom at least {min_free} must be free: {self._n_online} "
                    f"nodes are connected, {self.directory.n_named} are known"
                    f"{self._apart(len(clients))}, {len(idle)} are free"
                )
            if n_before != (n_before := len(clients)):
                _LOG.info(
                    "bsfl: waiting up to %.0f s; %d of %d nodes can be invited, at least %d must",
                    wait_s,
                    n_before,
                    self._n_online,
                    min_clients,
                )
            (pause if is_there else self.clock.sleep)(pause_s(waited_s))

    def _apart(self, n_clients: int) -> str:
        """Return what becomes of nodes that are known, if not all can be invited."""
        n_named, n_known = self.directory.n_named, len(self.directory.clients())
        shared = f" as {n_known} clients" if n_known < n_named else ""
        return f"{shared}, {n_clients} are eligible" if n_clients < n_known else shared

    def say_goodbye(self) -> list[ClientId]:
        """Take clients out of the fleet that have been away for long; return them."""
        left = self.presence.left(self.scheduler.clients, self.directory.clients())
        if left:
            self.scheduler.leave(left)
            self.directory.forget(set(left))
            _LOG.info("bsfl: %d clients are gone and have left, among them %r", len(left), left[0])
        return left

    def hear(self, node: int, reply: Message) -> tuple[ClientId, ClientId | None] | None:
        """Read in a reply who its sender is; return the name it had, and that it has now, if any.

        What was learned of a node goes with it to a name that is new. If it is that of a client
        that was here before, the node leaves, and the client comes back.
        """
        key = self.directory.reply_key
        if key is None or not self.directory.may_tell(node):
            return None
        renamed = self.directory.hear(node, told_name(reply, key))
        if renamed is None:
            return None
        before, after = renamed
        is_its = self.directory.holds(after, node)
        if is_its and self.scheduler.rename(before, after):
            return renamed
        self.scheduler.leave([before])
        if not is_its:
            return before, None
        self.scheduler.join([after])
        return before, after
