"""How clients are identified: what a name may be, and where a node's name is found."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Message, MetricRecord

from bsfl._core.clients import clean_id
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import records_of
from bsfl.types import ClientId

if TYPE_CHECKING:  # its module is not part of Flower's public API
    from flwr.proto.node_pb2 import NodeInfo

AUTO, NODE_ID, PARTITION_ID = "auto", "node-id", "partition-id"
Identity = str | Callable[[Any], ClientId]
"""How clients are identified; a function gets what the SuperLink knows of a node (`NodeInfo`)."""

_LOG = logging.getLogger("flwr")


def check_identity(identity: Any) -> Identity:
    """Return a way to identify clients after checking that it is one."""
    if callable(identity) or (isinstance(identity, str) and identity):
        return identity  # type: ignore[no-any-return]
    raise InvalidInput(
        "identity must be 'auto', 'node-id', a key of the node config such as 'partition-id', or "
        f"a function, got {identity!r}"
    )


def reported_name(reply: Message, key: str) -> Any:
    """Return the value of a key in any config or metric record of a reply; None: there is none."""
    if not reply.has_content():
        return None
    content = reply.content
    records: list[Mapping[str, Any]] = list(records_of(content, ConfigRecord).values())
    records += records_of(content, MetricRecord).values()
    return next((record[key] for record in records if key in record), None)


class Names:
    """Checks names, and names nodes that have none. All names are text, or all are numbers."""

    def __init__(self, names: Iterable[ClientId] = (), *, kind: type | None = None) -> None:
        """Start with the names that a scheduler has; the first one decides on the type of all."""
        self._kind = next((type(client) for client in names), kind)

    def of_node(self, node: int) -> ClientId:
        """Return the name of a client that is identified by its node id."""
        self._kind = self._kind or str
        return f"node-{node}" if self._kind is str else node

    def checked(self, name: Any) -> ClientId:
        """Return a name with the type of all names; raise InvalidInput if it is none.

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

    def from_function(self, function: Callable[[Any], ClientId], info: "NodeInfo") -> ClientId:
        """Return the name that a function gives a node, or that of its node id if it is none."""
        try:
            name = function(info)
        except Exception as error:  # custom code, on data that a node reported
            _LOG.warning(
                "bsfl: your identity function failed for node %d (%r); it is identified by its "
                "node id",
                info.node_id,
                error,
            )
            return self.of_node(info.node_id)
        return self.accepted(name, info.node_id)

    def accepted(self, name: Any, node: int) -> ClientId:
        """Return a checked name, or with a warning that of the node id."""
        try:
            return self.checked(name)
        except InvalidInput as error:
            _LOG.warning("bsfl: node %d is identified by its node id: %s", node, _short(str(error)))
            return self.of_node(node)


def is_node_id(client: ClientId) -> bool:
    """Return whether a client is identified by a node id, which is never used twice.

    >>> is_node_id("node-12"), is_node_id("node-a"), is_node_id(12)
    (True, False, False)
    """
    return isinstance(client, str) and client.startswith("node-") and client[5:].isdecimal()


def _short(text: str, n_max: int = 200) -> str:
    return text if len(text) <= n_max else f"{text[:n_max]} ..."
