"""The command that creates a template for a custom policy, scenario or task, with a test."""

import re
from importlib import resources
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer

from bsfl._core.registry import nearest
from bsfl.cli.terminal import clear_errors, say
from bsfl.errors import InvalidInput

STARTS = {
    "policy": (".py", "MyPolicy"),
    "scenario": (".toml", "my-fleet"),
    "task": (".py", "MyTask"),
}
"""What can be created: its file extension and its default name."""
NEXT = {
    "policy": "bsfl run phones --policy {file}:{name}",
    "scenario": "bsfl run {file}",
    "task": 'add [learning] with task = "{file}:{name}" to a scenario file',
}


def new(
    what: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(STARTS)}.",
            metavar="|".join(STARTS),
            autocompletion=lambda: list(STARTS),
        ),
    ],
    name: Annotated[str, typer.Argument(help="Its name.", show_default=False)] = "",
    folder: Annotated[Path, typer.Option("--folder", help="Folder to write to.")] = Path("."),
) -> None:
    """Create a template for a custom policy, scenario or task.

    The template has comments and a test. Existing files are never overwritten.

    Example: bsfl new policy LeastServed
    """
    with clear_errors():
        for line in write_start(what, name, folder):
            say(line)


def write_start(what: str, name: str, folder: Path) -> list[str]:
    """Write the files of a template, and return the lines to print."""
    if what not in STARTS:
        raise InvalidInput(f"cannot begin a {what!r}{nearest(what, STARTS)}")
    ending, usual = STARTS[what]
    name = name or usual
    pattern = r"[A-Za-z][\w-]*" if what == "scenario" else r"[A-Za-z]\w*"
    if not re.fullmatch(pattern, name, re.ASCII):
        raise InvalidInput(
            f"a {what}'s name must be letters and digits, the first a letter, got {name!r}"
        )
    if ending == ".py" and iskeyword(name):
        raise InvalidInput(f"a {what}'s name must not be a word of Python's own, got {name!r}")
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")
    file = f"{name if what == 'scenario' else module}{ending}"
    words = {"name": name, "module": module, "file": file, "test": f"test_{module}.py"}
    templates = resources.files("bsfl.cli") / "templates"
    paths = {
        folder / file: templates / f"{what}{ending}.txt",
        folder / words["test"]: templates / f"{what}_test.py.txt",
    }
    there = [str(path) for path in paths if path.exists()]
    if there:
        verb = "is" if len(there) == 1 else "are"
        raise InvalidInput(f"{' and '.join(there)} {verb} there already; nothing was written")
    if ending == ".py" and find_spec(module):
        raise InvalidInput(
            f"{file} would hide the module {module} from Python: choose another name, such as "
            f"My{name}; nothing was written"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, template in paths.items():
        text = template.read_text("utf-8")
        for key, word in words.items():
            text = text.replace(f"{{{key}}}", word)
        path.write_text(text, "utf-8")
    made, test = paths
    return [
        f"wrote {made} and {test}",
        f"try it: {NEXT[what].format(name=name, file=made)}",
        f"test it: python -m pytest {test}",
    ]
