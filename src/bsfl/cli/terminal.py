"""What all commands share: options, where they print, and how they end when something is wrong."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bsfl.errors import BsflError, DataError, reason
from bsfl.extras import optional_imports

console = Console()
errors = Console(stderr=True)

NO_DATA, BAD_INPUT, STOPPED = 1, 2, 130
"""Exit codes: a data set cannot be had; anything else raised on purpose; Ctrl-C."""


def _processes(jobs: int) -> int:
    if jobs != -1 and jobs < 1:
        raise typer.BadParameter(f"must be at least 1, or -1 for one per core, got {jobs}")
    return jobs


Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for results. [one of its own in results/]")
]
Seeds = Annotated[int | None, typer.Option(help="Worlds. [as the scenario says]", min=1)]
Jobs = Annotated[
    int, typer.Option("--jobs", help="Processes; -1: one per core.", callback=_processes)
]
Backend = Annotated[
    str | None,
    typer.Option("--backend", help="dask://host:port: a cluster that shares the folder. [none]"),
]
Quick = Annotated[bool, typer.Option("--quick", help="A small version, for a look.")]


def scenario_names() -> list[str]:
    """Return what may stand for a scenario, for completion in the shell."""
    from bsfl.scenario import shipped_scenarios

    return list(shipped_scenarios())


def policy_names() -> list[str]:
    """Return what may stand for a policy, likewise."""
    from bsfl.policies import POLICIES

    return list(POLICIES)


def say(text: str, to: Console = console, *, highlight: bool = False, style: str = "") -> None:
    """Print a line as it is, however long."""
    to.print(text, style=style or None, markup=False, highlight=highlight, soft_wrap=True)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what we raise on purpose into one message, and Ctrl-C into advice."""
    try:
        with optional_imports():
            yield
    except (BsflError, OSError) as error:
        file = getattr(error, "filename", None)
        say(f"error: {f'{file}: {reason(error)}' if file else error}", errors, style="red")
        raise typer.Exit(NO_DATA if isinstance(error, DataError) else BAD_INPUT) from None
    except KeyboardInterrupt:
        command = shlex.join(["bsfl", *sys.argv[1:]])
        say(f"\nstopped; what is done is kept. To go on: {command}", errors, highlight=True)
        raise typer.Exit(STOPPED) from None
