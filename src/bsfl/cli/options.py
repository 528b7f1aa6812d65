"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer


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
Quick = Annotated[bool, typer.Option("--quick", help="A small version, for a look.")]
