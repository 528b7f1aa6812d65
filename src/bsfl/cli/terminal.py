"""What all commands share: options, consoles, and exit codes for errors."""

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
"""Exit codes: a data set is unavailable; any other error of bsfl; Ctrl-C."""


def _processes(jobs: int) -> int:
    if jobs != -1 and jobs < 1:
        raise typer.BadParameter(f"must be at least 1, or -1 for one per core, got {jobs}")
    return jobs


Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for results. [a new one in results/]")
]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds. [from the scenario]", min=1)]
Jobs = Annotated[
    int, typer.Option("--jobs", help="Number of processes; -1: one per core.", callback=_processes)
]
Backend = Annotated[
    str | None,
    typer.Option("--backend", help="A Dask cluster that runs it, dask://host:port. [none]"),
]
Quick = Annotated[bool, typer.Option("--quick", help="Run a small version.")]


def scenario_names() -> list[str]:
    """Return the names of scenarios, for shell completion."""
    from bsfl.experiments.reading import shipped_scenarios

    return list(shipped_scenarios())


def policy_names() -> list[str]:
    """Return the names of policies, for shell completion."""
    from bsfl.policies import POLICIES

    return list(POLICIES)


def say(text: str, to: Console = console, *, highlight: bool = False, style: str = "") -> None:
    """Print a line without markup or wrapping."""
    to.print(text, style=style or None, markup=False, highlight=highlight, soft_wrap=True)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn errors of bsfl into one message, and Ctrl-C into the command that resumes."""
    try:
        with optional_imports():
            yield
    except (BsflError, OSError) as error:
        file = getattr(error, "filename", None)
        say(f"error: {f'{file}: {reason(error)}' if file else error}", errors, style="red")
        raise typer.Exit(NO_DATA if isinstance(error, DataError) else BAD_INPUT) from None
    except KeyboardInterrupt as stop:
        command = shlex.join(["bsfl", *sys.argv[1:]])
        advice = str(stop) or f"stopped; finished work is kept. To resume: {command}"
        say(f"\n{advice}", errors, highlight=True)
        raise typer.Exit(STOPPED) from None
