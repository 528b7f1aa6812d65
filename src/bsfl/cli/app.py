"""The commands that list, run and report. A command imports what it needs when it is called."""

import math
from pathlib import Path
from typing import Annotated

import typer
import typer.core
from rich.table import Table

import bsfl
from bsfl.cli import monitor, studies
from bsfl.cli.data import data
from bsfl.cli.terminal import (
    Backend,
    Jobs,
    Out,
    Seeds,
    clear_errors,
    console,
    policy_names,
    scenario_names,
)
from bsfl.extras import on_cluster
from bsfl.policies import POLICIES
from bsfl.registry import REQUIRED
from bsfl.studies import FIGURES, PAPER_SCENARIOS

typer.core.HAS_RICH = False  # before 0.21, the help is escaped for rich even when it is plain text

app = typer.Typer(
    help="Bandit scheduling for federated learning: which clients should train next?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Print the version."""
    if show:
        console.print(f"bsfl {bsfl.__version__}")
        raise typer.Exit


@app.command()
def policies() -> None:
    """List the selection policies and their settings."""
    table = Table("policy", "what it does", "settings", box=None, pad_edge=False)
    for name in POLICIES:
        settings = [
            key if default is REQUIRED else f"{key}={default!r}"
            for key, default in POLICIES.settings(name).items()
        ]
        table.add_row(name, POLICIES.about(name), ", ".join(settings) or "none")
    console.print(table, markup=False)


@app.command()
def scenarios() -> None:
    """List the scenarios that come with bsfl, and the paper's figures."""
    from bsfl.scenario import read_scenario, shipped_scenarios

    names = ("scenario", "clients", "cohort", "rounds or time", "about")
    table = Table(*names, box=None, pad_edge=False)
    for name, path in shipped_scenarios().items():
        one = read_scenario(path)
        length = f"{one.rounds:,}" if math.isinf(one.time_s) else f"{one.time_s:,.0f} s"
        table.add_row(name, str(one.fleet.n_clients), str(one.cohort_size), length, one.title)
    console.print(table)
    figures = ", ".join((*PAPER_SCENARIOS, *FIGURES))
    console.print(f"\nThe paper's figures, for bsfl reproduce: {figures}", soft_wrap=True)


@app.command()
def run(
    scenario: Annotated[
        str,
        typer.Argument(
            help="A scenario file, or a name from bsfl scenarios.", autocompletion=scenario_names
        ),
    ],
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            autocompletion=policy_names,
            help="One more that plays: a name from bsfl policies, or a class in a file of your "
            "own, mine.py:Rule. Repeat it for more.",
        ),
    ] = None,
    seeds: Seeds = None,
    jobs: Jobs = -1,
    backend: Backend = None,
    out: Out = None,
) -> None:
    """Run a scenario: every policy in every world; then report.

    Interrupted, it goes on where it stopped when the same command is given again.

    Example: bsfl run demo --seeds 2 --out results/demo
    """
    with clear_errors():
        from bsfl.cli.findings import write_and_show
        from bsfl.report import scenario_findings
        from bsfl.runs import watch
        from bsfl.scenario import find_scenario, with_more_policies
        from bsfl.studies.study import Effort

        found = with_more_policies(find_scenario(scenario), policies or [])
        folder = out or Path("results") / found.name
        with on_cluster(backend):
            results = Effort(seeds=seeds, jobs=jobs, watch=watch).run(found, folder)
        write_and_show(scenario_findings(results), folder)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that bsfl run wrote.")],
) -> None:
    """Write report.html, figures and summary.json of finished results again.

    Example: bsfl report results/demo
    """
    with clear_errors():
        from bsfl.cli.findings import write_and_show
        from bsfl.report import scenario_findings
        from bsfl.runs import open_results

        write_and_show(scenario_findings(open_results(folder)), folder)


app.command()(monitor.inspect)
app.command()(monitor.watch)
for command in (studies.advise, studies.reproduce, studies.leaderboard, studies.ablation):
    app.command()(command)
app.command(hidden=True)(studies.tune)
app.add_typer(data, name="data")
