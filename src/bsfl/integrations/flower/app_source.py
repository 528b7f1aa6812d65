"""What the source of the app that runs here says about its clients; it is read, never imported.

Flower puts the folder of an app on `sys.path` when it loads the server, in a deployment as well as
in a simulation, and the same folder holds the code of the clients.
"""

import ast
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

DEFAULT_ACTION = "default"


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
