"""How clients are named: what a node may be called, and where its name is found."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Message, MetricRecord

from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import held
from bsfl.scheduling.clients import ClientId, clean_id

if TYPE_CHECKING:  # where it lives is Flower's own business
    from flwr.proto.node_pb2 import NodeInfo

AUTO, NODE_ID, PARTITION_ID = "auto", "node-id", "partition-id"
Identity = str | Callable[[Any], ClientId]
"""How clients are named; a function gets what the SuperLink knows of a node (`NodeInfo`)."""

_LOG = logging.getLogger("flwr")


def check_identity(identity: Any) -> Identity:
    """Return a way to name clients after checking that it is one."""
    if callable(identity) or (isinstance(identity, str) and identity):
        return identity  # type: ignore[no-any-return]
    raise InvalidInput(
        "identity must be 'auto', 'node-id', a key of the node config such as 'partition-id', or "
        f"a function, got {identity!r}"
    )


def told_name(reply: Message, key: str) -> Any:
    """Return what a reply tells under a key, in one of its records; None if it does not."""
    if not reply.has_content():
        return None
    content = reply.content
    told: list[Mapping[str, Any]] = list(held(content, ConfigRecord).values())
    told += held(content, MetricRecord).values()
    return next((record[key] for record in told if key in record), None)


class Names:
    """Checks names, and names nodes that have none. A fleet's names are all text or all numbers."""

    def __init__(self, known: Iterable[ClientId] = (), *, kind: type | None = None) -> None:
        """Start with the names that a scheduler knows; they say what kind all are."""
        self._kind = next((type(client) for client in known), kind)

    def of_node(self, node: int) -> ClientId:
        """Return the name of a client that is known by its node id alone."""
        self._kind = self._kind or str
        return f"node-{node}" if self._kind is str else node

    def checked(self, name: Any) -> ClientId:
        """Return a name as this fleet spells it; raise InvalidInput if it is none.

        >>> names = Names(["ann"])
        >>> names.checked("bob"), names.checked(7), names.of_node(12)
        ('bob', '7', 'node-12')
        """
        client = clean_id(name)
        if client == "":
            raise InvalidInput("a name must have a character, got ''")
        self._kind = self._kind or type(client)
        if self._kind is str:
            return str(client)
        if isinstance(client, str) and client.isdecimal() and len(client) < len(str(2**64)):
            return int(client)
        if isinstance(client, str):
            raise InvalidInput(f"names must be all text or all numbers, got {client!r}")
        return client

    def by(self, function: Callable[[Any], ClientId], info: "NodeInfo") -> ClientId:
        """Return what a function calls a node, or its node id if that is no name."""
        try:
            name = function(info)
        except Exception as error:  # somebody else's code, about a node that says what it likes
            _LOG.warning(
                "bsfl: your identity function failed for node %d (%r); it goes by its node id",
                info.node_id,
                error,
            )
            return self.of_node(info.node_id)
        return self.accepted(name, info.node_id)

    def accepted(self, name: Any, node: int) -> ClientId:
        """Return a name as it is spelt here, or with a warning that of the node id."""
        try:
            return self.checked(name)
        except InvalidInput as error:
            _LOG.warning("bsfl: node %d goes by its node id: %s", node, _short(str(error)))
            return self.of_node(node)


def is_node_id(client: ClientId) -> bool:
    """Return whether a client is known by a node id, which nobody has twice.

    >>> is_node_id("node-12"), is_node_id("node-a"), is_node_id(12)
    (True, False, False)
    """
    return isinstance(client, str) and client.startswith("node-") and client[5:].isdecimal()


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]} ..."
