"""NodeRegistry: client names of nodes; each outlives node ids and belongs to one live node."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.serverapp import Grid

from bsfl.integrations.flower.identity import (
    AUTO,
    NODE_ID,
    PARTITION_ID,
    Identity,
    Names,
)
from bsfl.integrations.flower.identity_queries import IdentityQueries
from bsfl.rounds import Clock
from bsfl.types import ClientId

if TYPE_CHECKING:  # its module is not part of Flower's public API
    from flwr.proto.node_pb2 import NodeInfo

_LOG = logging.getLogger("flwr")


@dataclass(slots=True, kw_only=True)
class RegisteredNode:
    """A node and its client name.

    Attributes:
        info: What the SuperLink knows of it.
        order: Its place in the order in which nodes were registered here.
        client: Its name; None: not known yet.
        is_named: Whether the name is final; otherwise the node may still report one.
        is_invited: Whether it has ever been invited under this name.
        is_duplicate: Whether it was logged that another node has its name.
    """

    info: "NodeInfo"
    order: int
    client: ClientId | None = None
    is_named: bool = False
    is_invited: bool = False
    is_duplicate: bool = False


class NodeRegistry:
    """The client names of nodes.

    Of two nodes with one name, the one that was invited under it keeps it as long as it is online,
    and before that the one that registered first; the other one is not invited. Only a node with
    the same public key takes over at once: it is the same node, registered again.

    Attributes:
        identity: How clients are identified.
        names: Checks names.
    """

    def __init__(
        self,
        identity: Identity,
        clock: Clock,
        *,
        clients: Iterable[ClientId] = (),
        is_handled: bool | None = None,
    ) -> None:
        """Start without nodes.

        Args:
            identity: How clients are identified.
            clock: For waiting.
            clients: Names that the scheduler has.
            is_handled: Whether the clients' app handles identity queries; None: not known.
        """
        self.identity = identity
        self.names = Names(clients, kind=None if callable(identity) else str)
        self._nodes: dict[int, RegisteredNode] = {}
        self._holder: dict[ClientId, int] = {}
        self._online: Collection[int] = ()
        self._n_registered = 0
        self._queries: IdentityQueries | None = None
        can_query = is_handled or (is_handled is None and identity != AUTO)
        if self.reply_key is not None and can_query:
            self._queries = IdentityQueries(self.reply_key, clock, is_handled=is_handled)

    @property
    def reply_key(self) -> str | None:
        """The key under which a reply may report a name; None: names come from elsewhere."""
        if callable(self.identity) or self.identity == NODE_ID:
            return None
        return PARTITION_ID if self.identity == AUTO else self.identity

    def clients(self) -> dict[ClientId, int]:
        """Return the node of every client that was online at the last update."""
        return {client: node for client, node in self._holder.items() if node in self._online}

    def client_of(self, node: int) -> ClientId:
        """Return the client name of a node that has one."""
        client = self._nodes[node].client
        assert client is not None
        return client

    def info(self, node: int) -> "NodeInfo":
        return self._nodes[node].info

    @property
    def n_named(self) -> int:
        """How many nodes that are online have a name, a name of another node included."""
        return sum(
            entry.client is not None for node, entry in self._nodes.items() if node in self._online
        )

    def is_waiting(self) -> bool:
        """Return whether a node that is online is likely to report its name soon."""
        return self._queries is not None and self._queries.is_waiting(self._online)

    def update(self, grid: Grid, online: Collection[int]) -> None:
        """Receive replies to queries, register new nodes, and assign names to nodes."""
        self._online = online
        if self._queries is not None:
            for node, name in self._queries.receive(grid).items():
                self._set_queried_name(node, name)
        if new := {node for node in online if node not in self._nodes}:
            self._register([info for info in grid.get_nodes() if info.node_id in new])
        self._query_nameless(grid)
        self._assign()

    def may_report_name(self, node: int) -> bool:
        """Return whether a node is registered without a final name."""
        return node in self._nodes and not self._nodes[node].is_named

    def set_reported_name(self, node: int, name: Any) -> tuple[ClientId, ClientId] | None:
        """Set the name in a training reply; return the client's old and new name if it changed.

        The first name that a node reports is final.
        """
        if name is None or not self.may_report_name(node):
            return None
        entry = self._nodes[node]
        before, entry.client = entry.client, self.names.accepted(name, node)
        entry.is_named, entry.is_invited = True, entry.is_invited and before == entry.client
        if before is None or before == entry.client:
            return None
        self._holder.pop(before, None)
        self._assign()
        return before, entry.client

    def holds(self, client: ClientId, node: int) -> bool:
        """Return whether a name is assigned to a node."""
        return self._holder.get(client) == node

    def mark_invited(self, nodes: Iterable[int]) -> None:
        """Record that nodes are invited under their present names."""
        for node in nodes:
            self._nodes[node].is_invited = True

    def forget(self, clients: Collection[ClientId]) -> None:
        """Forget the nodes of clients that have left, unless they are online under another name."""
        for node, entry in list(self._nodes.items()):
            if node not in self._online and (entry.client is None or entry.client in clients):
                del self._nodes[node]
        for client in clients:
            if self._holder.get(client) not in self._nodes:
                self._holder.pop(client, None)

    # --- naming ---------------------------------------------------------------------------------

    def _register(self, infos: "list[NodeInfo]") -> None:
        """Add new nodes in the order of their registration, named where that needs no query."""
        for info in sorted(infos, key=lambda info: (info.registered_at, info.node_id)):
            self._n_registered += 1
            entry = RegisteredNode(info=info, order=self._n_registered)
            self._nodes[info.node_id] = entry
            if callable(self.identity):
                entry.client = self.names.from_function(self.identity, info)
                entry.is_named = True
            elif self.identity == AUTO and info.name:
                entry.client = self.names.accepted(info.name, info.node_id)
                entry.is_named = True
            elif self.identity == NODE_ID:
                entry.client, entry.is_named = self.names.of_node(info.node_id), True

    def _query_nameless(self, grid: Grid) -> None:
        """Query nodes without a name; without a query handler they are named by their node ids."""
        nameless = [
            node
            for node, entry in self._nodes.items()
            if entry.client is None and node in self._online
        ]
        if not nameless:
            return
        if self._queries is not None and self._queries.is_handled is not False:
            queried = self._queries.nodes
            self._queries.send(grid, [node for node in nameless if node not in queried])
            return
        for node in nameless:
            self._nodes[node].client = self.names.of_node(node)

    def _set_queried_name(self, node: int, name: Any) -> None:
        """Set the name in a reply to a query; without one the node is named by its node id."""
        entry = self._nodes.get(node)
        if entry is None or entry.is_named:
            return
        if name is None:
            entry.client = self.names.of_node(node)
            if self._queries is not None and self._queries.is_handled:
                _LOG.warning(
                    "bsfl: node %d does not reply to a query with its %s; it is identified by its "
                    "node id, and will be an unseen client after a restart",
                    node,
                    self.reply_key,
                )
            return
        entry.client, entry.is_named = self.names.accepted(name, node), True

    def _assign(self) -> None:
        """Assign every name to one node: its holder if online, else the first node with it."""
        for node, entry in self._nodes.items():  # in the order of registration
            if entry.client is None or node not in self._online:
                continue
            holder = self._holder.get(entry.client, node)
            if holder not in self._online or self._takes_over(node, holder):
                self._holder[entry.client] = node
                entry.is_duplicate = False
            elif not entry.is_duplicate and not self._is_same(node, holder):
                entry.is_duplicate = True
                _LOG.warning(
                    "bsfl: node %d reports the name %r, as node %d does, which keeps it while it "
                    "is online; node %d is not invited until then",
                    node,
                    entry.client,
                    holder,
                    node,
                )

    def _takes_over(self, node: int, holder: int) -> bool:
        """Return whether a node takes its name from the node that holds it and is online."""
        entry, held_by = self._nodes[node], self._nodes[holder]
        if self._is_same(node, holder):
            return entry.order >= held_by.order
        return not held_by.is_invited and entry.order < held_by.order

    def _is_same(self, a: int, b: int) -> bool:
        """Return whether two node ids are of one node, by their public keys."""
        key = self._nodes[a].info.public_key
        return a == b or (bool(key) and key == self._nodes[b].info.public_key)
