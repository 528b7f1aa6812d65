"""The commands that list, show and copy scenarios."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bsfl.cli.terminal import clear_errors, console, say, scenario_names
from bsfl.errors import InvalidInput
from bsfl.studies import FIGURES, PAPER_SCENARIOS

scenarios = typer.Typer(
    help="List, show and copy the scenarios that come with bsfl.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

Name = Annotated[
    str, typer.Argument(help="A name from bsfl scenarios.", autocompletion=scenario_names)
]


@scenarios.callback(invoke_without_command=True)
def list_all(context: typer.Context) -> None:
    """List, show and copy the scenarios that come with bsfl.

    Example: bsfl scenarios show demo
    """
    if context.invoked_subcommand is None:
        list_command()


@scenarios.command(name="list")
def list_command() -> None:
    """List the scenarios that come with bsfl.

    Example: bsfl scenarios list
    """
    from bsfl.experiments.reading import read_scenario, shipped_scenarios

    table = Table(box=None, pad_edge=False)
    for column in ("scenario", "clients", "cohort", "rounds or time"):
        table.add_column(column, no_wrap=True, overflow="ignore")  # names can be copied whole
    table.add_column("about")
    for name, path in shipped_scenarios().items():
        one = read_scenario(path)
        length = f"{one.rounds:,}" if math.isinf(one.time_s) else f"{one.time_s:,.0f} s"
        table.add_row(name, str(one.clients.n_clients), str(one.cohort_size), length, one.title)
    console.print(table)
    figures = ", ".join((*PAPER_SCENARIOS, *FIGURES))
    console.print(f"\nThe paper's figures, for bsfl reproduce: {figures}", soft_wrap=True)


@scenarios.command()
def show(name: Name) -> None:
    """Print the file of a scenario.

    Example: bsfl scenarios show demo
    """
    with clear_errors():
        from bsfl.experiments.reading import scenario_path

        typer.echo(scenario_path(name).read_text("utf-8"), nl=False)


@scenarios.command()
def copy(
    name: Name,
    to: Annotated[
        Path | None, typer.Argument(help="The new file. [NAME.toml here]", show_default=False)
    ] = None,
) -> None:
    """Copy the file of a scenario, to edit it.

    Existing files are never overwritten. Example: bsfl scenarios copy demo mine.toml
    """
    with clear_errors():
        from bsfl.experiments.reading import scenario_path

        source = scenario_path(name)
        target = Path(source.name) if to is None else to
        target = target / source.name if target.is_dir() else target
        if target.suffix != ".toml":
            raise InvalidInput(f"a scenario file must end in .toml, got {target}")
        if target.exists():
            raise InvalidInput(f"{target} is there already; nothing was written")
        target.write_text(source.read_text("utf-8"), "utf-8")
        say(f"wrote {target}; run it: bsfl run {target}")
