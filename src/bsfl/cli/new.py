"""The command that copies an example of a custom policy, scenario or task, with its test."""

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
    "scenario": (".toml", "my_scenario"),
    "task": (".py", "MyTask"),
}
"""What can be created: its file extension and the name of the example, which is the default."""
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
    """Create a custom policy, scenario or task from an example.

    The example has comments and a test. Existing files are never overwritten.

    Example: bsfl new policy LeastServed
    """
    with clear_errors():
        for line in copy_example(what, name, folder):
            say(line)


def copy_example(what: str, name: str, folder: Path) -> list[str]:
    """Write an example and its test under another name, and return the lines to print."""
    if what not in STARTS:
        raise InvalidInput(f"cannot create a {what!r}{nearest(what, STARTS)}")
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
    paths = {
        folder / file: f"my_{what}{ending}",
        folder / f"test_{module}.py": f"test_my_{what}.py",
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
    words = {usual: name, f"my_{what}": module, f"my_{what}{ending}": file}
    pattern = "|".join(map(re.escape, sorted(words, reverse=True)))
    for path, example in paths.items():
        text = (examples() / example).read_text("utf-8")
        path.write_text(re.sub(pattern, lambda found: words[found[0]], text), "utf-8")
    made, test = paths
    return [
        f"wrote {made} and {test}",
        f"try it: {NEXT[what].format(name=name, file=made)}",
        f"test it: python -m pytest {test}",
    ]


def examples() -> Path:
    """Return the folder of the examples, in the package or in a clone of the repository."""
    installed = Path(str(resources.files("bsfl"))) / "examples"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "examples" / "new"
