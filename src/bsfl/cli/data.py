"""The commands that list and download data sets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from bsfl.cli.terminal import clear_errors, console, errors, say
from bsfl.errors import DataError
from bsfl.learning.datasets import CATALOGUE, Watcher, get_dataset, where_is

data = typer.Typer(help="List and download data sets.", rich_markup_mode=None)

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Data folder. [BSFL_DATA_DIR, or the user cache]"),
]


@data.callback(invoke_without_command=True)
def list_all(context: typer.Context) -> None:
    """List and download data sets.

    Example: bsfl data get fashion-mnist
    """
    if context.invoked_subcommand is None:
        list_command()


@data.command(name="list")
def list_command(data_dir: DataDir = None) -> None:
    """List the data sets, with the location or the sources of each.

    Example: bsfl data list
    """
    with clear_errors():
        table = Table(box=None, pad_edge=False)
        for column in ("data set", "train + test", "image", "size", "licence"):
            table.add_column(column, no_wrap=True)
        table.add_column("where", overflow="fold")
        missing = []
        for name, entry in CATALOGUE.known.items():
            published, found = entry.published, where_is(entry, data_dir)
            where = f"{found[1]} ({found[0]})" if found else "not here"
            if entry.embedded:
                where = "part of bsfl"
            elif not found:
                missing.append(entry)
            table.add_row(
                name,
                f"{published.n_train:,} + {published.n_test:,}",
                "x".join(map(str, published.image_shape)),
                f"{published.size_bytes / 1e6:.0f} MB",
                entry.licence,
                where,
            )
        console.print(table, markup=False, highlight=False)
        for entry in missing:
            sources = ", then ".join(source.name for source in entry.remote)
            say(f"bsfl data get {entry.name}  tries {sources}", highlight=True)


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="A name from bsfl data list.")],
    data_dir: DataDir = None,
) -> None:
    """Download a data set from the first source that has it.

    The files are verified and cached.

    Example: bsfl data get fashion-mnist --data-dir ~/datasets
    """
    with clear_errors():
        with _progress(name) as watcher:
            obtained = get_dataset(name, data_dir=data_dir, watcher=watcher)
        if obtained.folder is None:
            raise DataError(f"{name} was found ({obtained.source}) but could not be kept anywhere")
        say(f"{name}: verified, from {obtained.source}; it is in {obtained.folder}")


@contextmanager
def _progress(name: str) -> Iterator[Watcher]:
    """Show the current source and the number of bytes received while the block runs."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task(name, total=None)

        def log(line: str) -> None:
            progress.reset(task, total=None)
            say(line, errors)

        def received(n_bytes: int, total: int) -> None:
            progress.update(task, completed=n_bytes, total=total or None)

        yield Watcher(say=log, received=received)
