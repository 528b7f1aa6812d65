"""The commands that list, run and report. A command imports what it needs when it is called."""

import csv
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import typer.core
from rich.table import Table
from rich.text import Text

from bsfl.cli import FIGURES, SIMULATOR, monitor, print_version, studies
from bsfl.cli.data import data
from bsfl.cli.new import new
from bsfl.cli.scenarios import scenarios
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
from bsfl.errors import InvalidInput
from bsfl.extras import on_cluster, require
from bsfl.policies import POLICIES, make_policy
from bsfl.registry import REQUIRED
from bsfl.requirements import LOSS, SAMPLES, needs_of

if TYPE_CHECKING:
    from bsfl.runs import Results

NEEDED = {LOSS: "losses", SAMPLES: "samples"}
"""What a policy may need of clients, in words."""

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
        print_version()
        raise typer.Exit


@app.command()
def policies(
    name: Annotated[
        str | None,
        typer.Argument(help="One of them, in full. [all]", autocompletion=policy_names),
    ] = None,
) -> None:
    """List the selection policies and their settings.

    Example: bsfl policies pace
    """
    if name is not None:
        with clear_errors():
            text = inspect.getdoc(POLICIES.find(name)) or ""
            typer.echo(text.replace("Attributes:\n", "Settings:\n"))
            typer.echo(f"\nDefaults: {_settings(name)}.{_needs(name)}")
        return
    table = Table("policy", "what it does, and its settings", box=None, pad_edge=False)
    for one in POLICIES:
        table.add_row(one, Text(POLICIES.about(one) + _needs(one)))
        table.add_row("", Text(_settings(one), style="dim"))
    console.print(table, highlight=False)


def _settings(name: str) -> str:
    """Return the settings of a policy with their defaults."""
    settings = POLICIES.settings(name).items()
    told = [key if default is REQUIRED else f"{key}={default!r}" for key, default in settings]
    return ", ".join(told) or "no settings"


def _needs(name: str) -> str:
    """Return what clients must report for a policy, in words."""
    try:
        policy = make_policy(name, **getattr(POLICIES[name], "example", {}))
    except InvalidInput:  # one of another package that must be told more
        return ""
    words = [word for need, word in NEEDED.items() if needs_of(policy) >= need]
    return f" Needs {' and '.join(words)}." if words else ""


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
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of that policy, alpha=3, or of any by its label, bsfl.alpha=3. Repeat "
            "it for more.",
        ),
    ] = None,
    seeds: Seeds = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of a run. [as the scenario says]", min=1)
    ] = None,
    time_s: Annotated[
        float | None,
        typer.Option("--time", help="Virtual seconds of a run. [as the scenario says]"),
    ] = None,
    jobs: Jobs = -1,
    backend: Backend = None,
    out: Out = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print a row per policy and world, and no report.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every metric as JSON, and no report.")
    ] = False,
) -> None:
    """Run a scenario: every policy in every world; then report.

    Interrupted, it goes on where it stopped when the same command is given again.

    Example: bsfl run phones --policy mine.py:LeastServed --set patience=5
    """
    with clear_errors():
        from bsfl.runs import Results, run_scenario, watch
        from bsfl.scenario import find_scenario, with_more_policies

        if as_csv and as_json:
            raise InvalidInput("choose one of --csv and --json")
        found = with_more_policies(
            find_scenario(scenario), policies or [], settings or [], rounds=rounds, time_s=time_s
        )
        folder = out or Path("results") / "-".join([found.name, *_length(rounds, time_s)])
        is_shown = not (as_csv or as_json)
        require(*SIMULATOR, *FIGURES * is_shown)  # what is missing shows before anything is begun
        if is_shown:
            from bsfl.cli.findings import check_folder, write_and_show
            from bsfl.report import scenario_findings

            check_folder(folder, has_runs=True)
        n_worlds = seeds or found.seeds
        with on_cluster(backend), watch([Results(folder, found, n_worlds)], jobs=jobs):
            results = run_scenario(found, folder, seeds=n_worlds, jobs=jobs)
        if as_csv or as_json:
            _print(results, as_csv=as_csv)
        else:
            write_and_show(scenario_findings(results), folder)


def _length(rounds: int | None, time_s: float | None) -> list[str]:
    """Return another length as parts of a folder's name."""
    given = {"rounds": rounds, "s": time_s}
    return [f"{value:g}-{unit}" for unit, value in given.items() if value is not None]


def _print(results: "Results", *, as_csv: bool) -> None:
    """Print what came out for another program to read."""
    from bsfl.analysis import summarise

    summary = summarise(results)
    if not as_csv:
        typer.echo(json.dumps(summary.as_json()))
        return
    rows = summary.rows()
    columns = dict.fromkeys(key for row in rows for key in row)
    writer = csv.DictWriter(sys.stdout, columns)
    writer.writeheader()
    writer.writerows(rows)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that bsfl run wrote.")],
) -> None:
    """Write report.html, figures and summary.json again.

    Example: bsfl report results/demo
    """
    with clear_errors():
        require(*FIGURES)
        from bsfl.cli.findings import write_and_show
        from bsfl.report import scenario_findings
        from bsfl.runs import open_results

        write_and_show(scenario_findings(open_results(folder)), folder)


app.add_typer(scenarios, name="scenarios")
app.command()(new)
app.command()(monitor.inspect)
app.command()(monitor.watch)
for command in (studies.advise, studies.reproduce, studies.leaderboard, studies.ablation):
    app.command()(command)
app.command(hidden=True)(studies.tune)
app.add_typer(data, name="data")
