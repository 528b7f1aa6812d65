"""What all commands share: where they print, and how they end when something is wrong."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from bsfl.errors import BsflError, DataError
from bsfl.extras import optional_imports

if TYPE_CHECKING:
    from bsfl.report import Findings

console = Console()
errors = Console(stderr=True)

NO_DATA, BAD_INPUT, STOPPED = 1, 2, 130
"""Exit codes: a data set cannot be had; anything else raised on purpose; Ctrl-C."""


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what we raise on purpose into one message, and Ctrl-C into advice."""
    try:
        with optional_imports():
            yield
    except (BsflError, OSError) as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(NO_DATA if isinstance(error, DataError) else BAD_INPUT) from None
    except KeyboardInterrupt:
        command = shlex.join(["bsfl", *sys.argv[1:]])
        errors.print(
            f"\nstopped; what is done is kept. To go on: {command}", markup=False, soft_wrap=True
        )
        raise typer.Exit(STOPPED) from None


def show(findings: "Findings", folder: Path) -> None:
    """Print tables and verdict, and say where the rest is."""
    from bsfl.cli.tables import drawn

    for table in findings.tables if findings.brief is None else findings.brief:
        console.print(drawn(table))
    for line in (*findings.verdict, f"report.html, figures and summary.json are in {folder}"):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
