"""IdentityQueries: QUERY messages for the names of nodes, where their app handles such messages."""

import ast
import logging
import sys
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from bsfl.integrations.flower.identity import reported_name
from bsfl.integrations.flower.message_exchange import is_lost
from bsfl.rounds import Clock

DEFAULT_ACTION = "default"

QUIET_S = 15.0
"""Seconds without a reply to a batch of queries after which no round waits for it."""
QUERY_LIFETIME_S = 600.0

_LOG = logging.getLogger("flwr")


def has_query_handler(search: Iterable[str] | None = None) -> bool | None:
    """Return whether the ClientApp handles a plain query; None: its source does not show it.

    A client without such a handler replies with an error and writes a traceback into its log.

    Args:
        search: Folders that may hold an app; None: those of `sys.path`.
    """
    for folder in map(Path, sys.path if search is None else search):
        module, name = _client_app(folder)
        if module is None:
            continue
        source = folder / Path(*module.split("."))
        for file in (source.with_suffix(".py"), source / "__init__.py"):
            if file.is_file():
                return _registers_query(file, name)
    return None


def _client_app(folder: Path) -> tuple[str | None, str]:
    """Return the module and the name of the ClientApp of a folder with a Flower app."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        module, _, name = project["tool"]["flwr"]["app"]["components"]["clientapp"].partition(":")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, ""
    return module, name


def _registers_query(file: Path, app: str) -> bool | None:
    """Return whether a module calls `app.query()`; None: another module may do so."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    except (OSError, ValueError, SyntaxError):
        return None
    if any(_is_plain_query(node, app) for node in nodes):
        return True
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    named = [node for node in nodes if isinstance(node, ast.Name) and node.id == app]
    is_made_here = any(_makes(node, app) for node in nodes)
    is_passed_on = any(isinstance(n.ctx, ast.Load) and id(n) not in owners for n in named)
    return False if is_made_here and not is_passed_on else None


def _makes(node: ast.AST, app: str) -> bool:
    """Return whether a statement is `app = ClientApp(...)`; other functions may add handlers."""
    if not (isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call)):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    maker = node.value.func
    name = maker.attr if isinstance(maker, ast.Attribute) else getattr(maker, "id", None)
    return name == "ClientApp" and any(isinstance(t, ast.Name) and t.id == app for t in targets)


def _is_plain_query(node: ast.AST, app: str) -> bool:
    if not (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "query"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == app
    ):
        return False
    action = [*node.args, *(k.value for k in node.keywords if k.arg == "action")][:1]
    return not action or (isinstance(action[0], ast.Constant) and action[0].value == DEFAULT_ACTION)


@dataclass(slots=True)
class Batch:
    """Queries that were sent together, and when the last one was sent or replied to."""

    active_at: float


@dataclass(frozen=True, slots=True)
class Query:
    """A query for the name of a node."""

    node: int
    batch: Batch


class IdentityQueries:
    """Queries for the names of nodes, one per node. All nodes of a run have the same app.

    Where it is not known whether that app handles queries, one node is queried first; if it
    replies with an error, no other node is.

    Attributes:
        key: The key of the name in the node config.
        is_handled: Whether the app handles queries; None: not known yet.
    """

    def __init__(self, key: str, clock: Clock, *, is_handled: bool | None) -> None:
        self.key, self.is_handled = key, is_handled
        self._clock = clock
        self._open: dict[str, Query] = {}  # by message id

    @property
    def nodes(self) -> set[int]:
        """Nodes that were queried and have not replied."""
        return {query.node for query in self._open.values()}

    def is_waiting(self, online: Collection[int]) -> bool:
        """Return whether a reply of a node that is online is likely to come soon."""
        quiet_since = self._clock.monotonic() - QUIET_S
        return any(
            query.node in online and query.batch.active_at > quiet_since
            for query in self._open.values()
        )

    def send(self, grid: Grid, nodes: list[int]) -> None:
        """Query nodes, or only the first while it is not known whether the app handles queries."""
        if self.is_handled is None:
            nodes = [] if self.is_waiting(self.nodes) else nodes[:1]
        if not nodes:
            return
        messages = [
            Message(
                RecordDict({"config": ConfigRecord({"wanted": self.key})}),
                dst_node_id=node,
                message_type=MessageType.QUERY,
                ttl=QUERY_LIFETIME_S,
            )
            for node in nodes
        ]
        sent = set(grid.push_messages(messages))
        batch = Batch(active_at=self._clock.monotonic())
        for message in messages:
            if message.metadata.message_id in sent:
                node = message.metadata.dst_node_id
                self._open[message.metadata.message_id] = Query(node, batch)

    def receive(self, grid: Grid) -> dict[int, Any]:
        """Return the names of the nodes that replied; None for a node that reports no name.

        A node that was not reached is queried again if it is still online.
        """
        names: dict[int, Any] = {}
        for reply in grid.pull_messages(list(self._open)) if self._open else ():
            query = self._open.pop(reply.metadata.reply_to_message_id, None)
            if query is None:
                continue
            query.batch.active_at = self._clock.monotonic()
            if is_lost(reply):
                continue
            if self.is_handled is None:
                self.is_handled = not reply.has_error()
                self._warn_if_unhandled()
            names[query.node] = None if reply.has_error() else reported_name(reply, self.key)
        return names

    def _warn_if_unhandled(self) -> None:
        if not self.is_handled:
            _LOG.warning(
                "bsfl: the ClientApp has no query handler; clients are identified by their node "
                "ids until a training reply reports their %s",
                self.key,
            )
