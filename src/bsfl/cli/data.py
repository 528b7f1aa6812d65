"""The commands that list and download data sets."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bsfl.cli.terminal import clear_errors, console, errors, say
from bsfl.errors import DataError
from bsfl.learning.datasets import CATALOGUE, get_dataset, where_is

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
            found = where_is(entry, data_dir)
            where = f"{found[1]} ({found[0]})" if found else "not here"
            if not entry.address:
                where = "part of bsfl"
            elif not found:
                missing.append(entry)
            table.add_row(
                name,
                f"{entry.n_train:,} + {entry.n_test:,}",
                "x".join(map(str, entry.image_shape)),
                f"{entry.size_bytes / 1e6:.0f} MB",
                entry.licence,
                where,
            )
        console.print(table, markup=False, highlight=False)
        for entry in missing:
            say(f"bsfl data get {entry.name}  downloads from {entry.address}", highlight=True)


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
        obtained = get_dataset(name, data_dir=data_dir, log=lambda line: say(line, errors))
        if obtained.folder is None:
            raise DataError(f"{name} was found ({obtained.source}), but no copy could be kept")
        say(f"{name}: verified, from {obtained.source}; it is in {obtained.folder}")
