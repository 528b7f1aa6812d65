"""Asks nodes who they are, by a QUERY message, if their app can answer it."""

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

from bsfl.integrations.flower.identity import told_name
from bsfl.integrations.flower.wire import is_lost
from bsfl.rounds import Clock

DEFAULT_ACTION = "default"

QUIET_S = 15.0
"""How long nothing may be heard from nodes that were asked before they hold up no round."""
QUESTION_LIFETIME_S = 600.0

_LOG = logging.getLogger("flwr")


def has_query_handler(search: Iterable[str] | None = None) -> bool | None:
    """Return whether the ClientApp answers a plain query; None where its source does not say.

    A client without such a handler answers with an error and writes a traceback into its log.

    Args:
        search: Folders in which an app may be; None: those of `sys.path`.
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
    """Return whether a module calls `app.query()`; None if another module may do so."""
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
    """Return whether a node is `app = ClientApp(...)`; any other function may add handlers."""
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
    """Nodes that were asked for their names together, and when one was last asked or heard."""

    active_at: float


@dataclass(frozen=True, slots=True)
class Question:
    """A node that was asked for its name."""

    node: int
    batch: Batch


class Questions:
    """Every node is asked once. All nodes of a run have the same app.

    Where it is not known whether that app answers queries, one node is asked first; if it cannot
    answer, no other is.

    Attributes:
        key: What is asked for.
        is_answered: Whether the app answers queries; None: not known yet.
    """

    def __init__(self, key: str, clock: Clock, *, is_answered: bool | None) -> None:
        self.key, self.is_answered = key, is_answered
        self._clock = clock
        self._open: dict[str, Question] = {}  # by message

    @property
    def nodes(self) -> set[int]:
        """Nodes that were asked and have not answered."""
        return {question.node for question in self._open.values()}

    def is_waiting(self, online: Collection[int]) -> bool:
        """Return whether a node that is online may be about to say who it is."""
        quiet_since = self._clock.monotonic() - QUIET_S
        return any(
            question.node in online and question.batch.active_at > quiet_since
            for question in self._open.values()
        )

    def ask(self, grid: Grid, nodes: list[int]) -> None:
        """Ask nodes, or only the first while nobody knows whether it can answer."""
        if self.is_answered is None:
            nodes = [] if self.is_waiting(self.nodes) else nodes[:1]
        if not nodes:
            return
        questions = [
            Message(
                RecordDict({"config": ConfigRecord({"wanted": self.key})}),
                dst_node_id=node,
                message_type=MessageType.QUERY,
                ttl=QUESTION_LIFETIME_S,
            )
            for node in nodes
        ]
        sent = set(grid.push_messages(questions))
        batch = Batch(active_at=self._clock.monotonic())
        for question in questions:
            if question.metadata.message_id in sent:
                node = question.metadata.dst_node_id
                self._open[question.metadata.message_id] = Question(node, batch)

    def answers(self, grid: Grid) -> dict[int, Any]:
        """Return what the nodes that answered are called; None for one that cannot tell.

        A node that could not be reached is asked again, should it still be there.
        """
        told: dict[int, Any] = {}
        for reply in grid.pull_messages(list(self._open)) if self._open else ():
            question = self._open.pop(reply.metadata.reply_to_message_id, None)
            if question is None:
                continue
            question.batch.active_at = self._clock.monotonic()
            if is_lost(reply):
                continue
            if self.is_answered is None:
                self.is_answered = not reply.has_error()
                self._say_if_nobody_is_asked()
            told[question.node] = None if reply.has_error() else told_name(reply, self.key)
        return told

    def _say_if_nobody_is_asked(self) -> None:
        if not self.is_answered:
            _LOG.warning(
                "bsfl: the ClientApp has no query handler; clients go by their node id until a "
                "training reply tells their %s",
                self.key,
            )
