"""The commands that list, run and report. Each command imports its dependencies when it runs."""

import csv
import inspect
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import typer.core
from rich.table import Table
from rich.text import Text

from bsfl._core.registry import REQUIRED, is_reference
from bsfl.cli import FIGURES, NEEDS, SIMULATOR, monitor, print_version, studies
from bsfl.cli.advise import advise
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
from bsfl.extras import require
from bsfl.policies import POLICIES, make_policy
from bsfl.policy import LOSS, SAMPLES

if TYPE_CHECKING:
    from bsfl.experiments.results import Results

Trust = Annotated[
    bool,
    typer.Option("--trust", help="Execute files that are not below the current folder, too."),
]

NEEDED = {LOSS: "losses", SAMPLES: "samples"}
"""Names of what a policy can require clients to report."""

typer.core.HAS_RICH = False  # before 0.21, the help is escaped for rich even when it is plain text

app = typer.Typer(
    help="Bandit scheduling for federated learning: which clients should train next?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Print the version."""
    if show:
        print_version()
        raise typer.Exit


@app.command()
def policies(
    name: Annotated[
        str | None,
        typer.Argument(help="Policy to describe in full. [all]", autocompletion=policy_names),
    ] = None,
    trust: Trust = False,
) -> None:
    """List the selection policies and their settings.

    Example: bsfl policies pace
    """
    if name is not None:
        with clear_errors():
            if is_reference(name) and os.path.isfile(file := Path(name.rpartition(":")[0])):
                from bsfl.cli.own_files import check_trust

                check_trust([file.resolve()], is_trusted=trust)
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
    words = [key if default is REQUIRED else f"{key}={default!r}" for key, default in settings]
    return ", ".join(words) or "no settings"


def _needs(name: str) -> str:
    """Return a sentence with what clients must report for a policy."""
    try:
        policy = make_policy(name, **getattr(POLICIES[name], "example", {}))
    except InvalidInput:  # a policy of another package that has required settings
        return ""
    words = [word for need, word in NEEDED.items() if policy.needs >= need]
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
            help="Additional policy to run: a name from bsfl policies, or a custom class, "
            "mine.py:Rule. Repeat the option for several.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of that policy, alpha=3, or of the policy with a label, bsfl.alpha=3. "
            "Repeat the option for several.",
        ),
    ] = None,
    seeds: Seeds = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds per run. [from the scenario]", min=1)
    ] = None,
    time_s: Annotated[
        float | None,
        typer.Option("--time", help="Virtual seconds per run. [from the scenario]"),
    ] = None,
    trust: Trust = False,
    jobs: Jobs = -1,
    backend: Backend = None,
    out: Out = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print a row per policy and seed instead of a report.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every metric as JSON instead of a report.")
    ] = False,
) -> None:
    """Run the policies of a scenario with every seed, then report.

    An interrupted run resumes when the same command is run again.

    Example: bsfl run phones --policy mine.py:LeastServed --set patience=5
    """
    with clear_errors():
        from bsfl.cli.own_files import check_trust, with_more_policies
        from bsfl.experiments.reading import executed_files, read_scenario
        from bsfl.experiments.runner import run_scenario

        if as_csv and as_json:
            raise InvalidInput("choose one of --csv and --json")
        found = with_more_policies(
            read_scenario(scenario), policies or [], settings or [], rounds=rounds, time_s=time_s
        )
        check_trust(executed_files(found), is_trusted=trust)
        folder = out or Path("results") / "-".join([found.name, *_length(rounds, time_s)])
        is_shown = not (as_csv or as_json)
        require(*SIMULATOR, *FIGURES * is_shown)  # fail before any run starts
        if is_shown:
            from bsfl.cli.reports import check_folder, write_and_show
            from bsfl.report import scenario_report

            check_folder(folder, has_runs=True)
        from bsfl.experiments.parallel import on_cluster

        with on_cluster(backend):
            results = run_scenario(found, folder, seeds=seeds, jobs=jobs, progress=True)
        if as_csv or as_json:
            _print(results, as_csv=as_csv)
        else:
            write_and_show(scenario_report(results), folder)


def _length(rounds: int | None, time_s: float | None) -> list[str]:
    """Return the length given on the command line as parts of a folder name."""
    given = {"rounds": rounds, "s": time_s}
    return [f"{value:g}-{unit}" for unit, value in given.items() if value is not None]


def _print(results: "Results", *, as_csv: bool) -> None:
    """Print the results in a machine-readable form."""
    from bsfl.experiments.summary import summarise

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
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report. [that of the results]")
    ] = None,
) -> None:
    """Rewrite report.html, the figures and summary.json.

    Example: bsfl report results/demo
    """
    with clear_errors():
        require(*NEEDS["report"])
        from bsfl.cli.reports import write_and_show
        from bsfl.experiments.results import open_results
        from bsfl.report import scenario_report

        write_and_show(scenario_report(open_results(folder)), out or folder)


app.add_typer(scenarios, name="scenarios")
app.command()(new)
app.command()(monitor.inspect)
app.command()(monitor.watch)
app.command()(monitor.effect)
for command in (advise, studies.reproduce, studies.leaderboard, studies.ablation):
    app.command()(command)
app.add_typer(data, name="data")
