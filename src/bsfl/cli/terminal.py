"""What all commands share: where they print, and how they end when something is wrong."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from bsfl.errors import BsflError, DataError

console = Console()
errors = Console(stderr=True)

NO_DATA, BAD_INPUT, STOPPED = 1, 2, 130
"""Exit codes: a data set cannot be had; anything else raised on purpose; Ctrl-C."""


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what we raise on purpose into one message, and Ctrl-C into advice."""
    try:
        yield
    except BsflError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(NO_DATA if isinstance(error, DataError) else BAD_INPUT) from None
    except OSError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        command = shlex.join(["bsfl", *sys.argv[1:]])
        errors.print(
            f"\nstopped; what is done is kept. To go on: {command}", markup=False, soft_wrap=True
        )
        raise typer.Exit(STOPPED) from None
