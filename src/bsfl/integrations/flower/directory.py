"""Who is behind the nodes: names that outlive node ids, each held by one living node."""

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
from bsfl.integrations.flower.questions import Questions
from bsfl.rounds import Clock
from bsfl.scheduling.clients import ClientId

if TYPE_CHECKING:  # where it lives is Flower's own business
    from flwr.proto.node_pb2 import NodeInfo

_LOG = logging.getLogger("flwr")


@dataclass(slots=True, kw_only=True)
class Known:
    """What is known of a node.

    Attributes:
        info: What the SuperLink tells of it.
        order: The how many-th node it was to be seen here.
        client: Its name; None until it has said who it is.
        is_named: Whether the name is its own; else it may still tell one.
        is_invited: Whether it has ever been invited under this name.
        waits: Whether it has been said that another node has its name.
    """

    info: "NodeInfo"
    order: int
    client: ClientId | None = None
    is_named: bool = False
    is_invited: bool = False
    waits: bool = False


class Directory:
    """The clients behind the nodes.

    Of two nodes with one name the one that was invited under it keeps it as long as it lives, and
    before that the one that registered first; the other is not invited. Only a node with the same
    public key takes over at once: it is the same one, registered again.

    Attributes:
        identity: How clients are named.
        names: Checks them.
    """

    def __init__(
        self,
        identity: Identity,
        clock: Clock,
        *,
        known: Iterable[ClientId] = (),
        is_answered: bool | None = None,
    ) -> None:
        """Start with nobody.

        Args:
            identity: How clients are named.
            clock: For waiting.
            known: Names that the scheduler has.
            is_answered: Whether the clients' app answers queries; None: not known.
        """
        self.identity = identity
        self.names = Names(known, kind=None if callable(identity) else str)
        self._nodes: dict[int, Known] = {}
        self._holder: dict[ClientId, int] = {}
        self._online: Collection[int] = ()
        self._n_met = 0
        self._questions: Questions | None = None
        can_be_asked = is_answered or (is_answered is None and identity != AUTO)
        if self.reply_key is not None and can_be_asked:
            self._questions = Questions(self.reply_key, clock, is_answered=is_answered)

    @property
    def reply_key(self) -> str | None:
        """Under which key a reply may tell a name, None if names come from elsewhere."""
        if callable(self.identity) or self.identity == NODE_ID:
            return None
        return PARTITION_ID if self.identity == AUTO else self.identity

    def clients(self) -> dict[ClientId, int]:
        """Return the node of every client that was online at the last look."""
        return {client: node for client, node in self._holder.items() if node in self._online}

    def client_of(self, node: int) -> ClientId:
        """Return who is behind a node that has a name."""
        client = self._nodes[node].client
        assert client is not None
        return client

    def info(self, node: int) -> "NodeInfo":
        return self._nodes[node].info

    @property
    def n_named(self) -> int:
        """How many nodes that are online have a name, be it one that others have, too."""
        return sum(
            known.client is not None for n, known in self._nodes.items() if n in self._online
        )

    def is_waiting(self) -> bool:
        """Return whether a node that is online may be about to say who it is."""
        return self._questions is not None and self._questions.is_waiting(self._online)

    def update(self, grid: Grid, online: Collection[int]) -> None:
        """Collect answers, find out who the newcomers are, and who has which name."""
        self._online = online
        if self._questions is not None:
            for node, name in self._questions.answers(grid).items():
                self._name(node, name)
        if strangers := {node for node in online if node not in self._nodes}:
            self._meet([info for info in grid.get_nodes() if info.node_id in strangers])
        self._ask(grid)
        self._settle()

    def may_tell(self, node: int) -> bool:
        """Return whether a node is known that has no name of its own."""
        return node in self._nodes and not self._nodes[node].is_named

    def hear(self, node: int, name: Any) -> tuple[ClientId, ClientId] | None:
        """Take a name that a training reply tells; return what the client was called, and is.

        The first name that a node tells is its own for good.
        """
        if name is None or not self.may_tell(node):
            return None
        known = self._nodes[node]
        before, known.client = known.client, self.names.accepted(name, node)
        known.is_named, known.is_invited = True, known.is_invited and before == known.client
        if before is None or before == known.client:
            return None
        self._holder.pop(before, None)
        self._settle()
        return before, known.client

    def holds(self, client: ClientId, node: int) -> bool:
        """Return whether a client is behind a node."""
        return self._holder.get(client) == node

    def invite(self, nodes: Iterable[int]) -> None:
        """Note that nodes are invited, each as the client it says it is."""
        for node in nodes:
            self._nodes[node].is_invited = True

    def forget(self, clients: Collection[ClientId]) -> None:
        """Forget the nodes of clients that have left, unless they are there under another name."""
        for node, known in list(self._nodes.items()):
            if node not in self._online and (known.client is None or known.client in clients):
                del self._nodes[node]
        for client in clients:
            if self._holder.get(client) not in self._nodes:
                self._holder.pop(client, None)

    # --- naming ---------------------------------------------------------------------------------

    def _meet(self, infos: "list[NodeInfo]") -> None:
        """Name newcomers, in the order in which they registered, as far as that needs no answer."""
        for info in sorted(infos, key=lambda info: (info.registered_at, info.node_id)):
            self._n_met += 1
            self._nodes[info.node_id] = known = Known(info=info, order=self._n_met)
            if callable(self.identity):
                known.client, known.is_named = self.names.by(self.identity, info), True
            elif self.identity == AUTO and info.name:
                known.client = self.names.accepted(info.name, info.node_id)
                known.is_named = True
            elif self.identity == NODE_ID:
                known.client, known.is_named = self.names.of_node(info.node_id), True

    def _ask(self, grid: Grid) -> None:
        """Ask nameless nodes who they are; where nobody can be asked they go by their node ids."""
        named = self._nodes.items()
        nameless = [n for n, k in named if k.client is None and n in self._online]
        if not nameless:
            return
        if self._questions is not None and self._questions.is_answered is not False:
            asked = self._questions.nodes
            self._questions.ask(grid, [node for node in nameless if node not in asked])
            return
        for node in nameless:
            self._nodes[node].client = self.names.of_node(node)

    def _name(self, node: int, name: Any) -> None:
        """Book what a node answered; one that cannot tell goes by its node id."""
        known = self._nodes.get(node)
        if known is None or known.is_named:
            return
        if name is None:
            known.client = self.names.of_node(node)
            if self._questions is not None and self._questions.is_answered:
                _LOG.warning(
                    "bsfl: node %d does not answer a query with its %s; it is known by its node "
                    "id and will be a stranger after a restart",
                    node,
                    self.reply_key,
                )
            return
        known.client, known.is_named = self.names.accepted(name, node), True

    def _settle(self) -> None:
        """Give every name to one node: its living holder, else the first that claims it."""
        for node, known in self._nodes.items():  # in the order in which they came
            if known.client is None or node not in self._online:
                continue
            holder = self._holder.get(known.client, node)
            if holder not in self._online or self._takes_over(node, holder):
                self._holder[known.client] = node
                known.waits = False
            elif not known.waits and not self._is_same(node, holder):
                known.waits = True
                _LOG.warning(
                    "bsfl: node %d says that it is %r, as node %d does, which keeps the name "
                    "while it is there; node %d is not invited until then",
                    node,
                    known.client,
                    holder,
                    node,
                )

    def _takes_over(self, node: int, holder: int) -> bool:
        """Return whether a node has more right to its name than the living one that holds it."""
        mine, its = self._nodes[node], self._nodes[holder]
        if self._is_same(node, holder):
            return mine.order >= its.order
        return not its.is_invited and mine.order < its.order

    def _is_same(self, a: int, b: int) -> bool:
        """Return whether two nodes are one, by their public keys."""
        key = self._nodes[a].info.public_key
        return a == b or (bool(key) and key == self._nodes[b].info.public_key)
