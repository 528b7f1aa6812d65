"""The commands."""

import json
import math
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated

import typer
import typer.core
from rich.table import Table

import bsfl
from bsfl import checks
from bsfl.analysis.statistics import markdown_table
from bsfl.cli.data import data
from bsfl.cli.progress import watch
from bsfl.cli.tables import (
    annealing_table,
    leaderboard_table,
    rows_table,
    saved_percent,
    summary_table,
    tuning_table,
)
from bsfl.cli.terminal import clear_errors, console, errors
from bsfl.files import replace_file
from bsfl.policies import POLICIES
from bsfl.report import write_report
from bsfl.report.style import save
from bsfl.runs.results import Results, open_results
from bsfl.runs.run import run_scenario
from bsfl.scenario.scenario import (
    Scenario,
    find_scenario,
    read_scenario,
    shipped_scenarios,
)
from bsfl.studies.ablations import ABLATIONS, run_ablation
from bsfl.studies.candidates import MOST_TRIES
from bsfl.studies.leaderboard import ARENA, COMPETITORS, run_leaderboard
from bsfl.studies.leaderboard import quick as quick_version
from bsfl.studies.leaderboard_page import write_leaderboard
from bsfl.studies.paper import FIGURES, figure_scenario, make_study
from bsfl.studies.radius_figure import radius_figure
from bsfl.studies.tuning import read_log, recommended, try_settings
from bsfl.studies.tuning_figure import tuning_figure

typer.core.HAS_RICH = False  # before 0.21, the help is escaped for rich even when it is plain text

app = typer.Typer(
    help="Bandit scheduling for federated learning: which clients should train next?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data, name="data")


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
    for name, policy in POLICIES.items():
        about = (policy.__doc__ or "").strip().partition("\n")[0]
        settings = ", ".join(
            f.name if f.default is MISSING else f"{f.name}={f.default!r}"
            for f in fields(policy)  # type: ignore[arg-type]
        )
        table.add_row(name, about, settings or "none")
    console.print(table, markup=False)


@app.command()
def scenarios() -> None:
    """List the scenarios that come with bsfl, and the paper's figures."""
    names = ("scenario", "clients", "cohort", "rounds or time", "about")
    table = Table(*names, box=None, pad_edge=False)
    for name, path in shipped_scenarios().items():
        one = read_scenario(path)
        length = f"{one.rounds:,}" if math.isinf(one.time_s) else f"{one.time_s:,.0f} s"
        table.add_row(name, str(one.fleet.n_clients), str(one.cohort_size), length, one.title)
    console.print(table)
    figures = Table("figure", "about", box=None, pad_edge=False)
    for name, about in FIGURES.items():
        figures.add_row(name, about)
    console.print("\nThe paper's figures, for bsfl reproduce:")
    console.print(figures)


@app.command()
def run(
    scenario: Annotated[
        str, typer.Argument(help="A scenario file, or a name from bsfl scenarios.")
    ],
    seeds: Seeds = None,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Run a scenario: every policy in every world; then report.

    Interrupted, it goes on where it stopped when the same command is given again.

    Example: bsfl run demo --seeds 2 --out results/demo
    """
    with clear_errors():
        found = find_scenario(scenario)
        _run_and_report(found, out or Path("results") / found.name, seeds=seeds, jobs=jobs)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="A figure from bsfl scenarios, or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small version, for a look.")] = False,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Make one of the paper's figures again, or all of them, each in its own folder.

    Example: bsfl reproduce annealing --quick --out results/annealing-quick
    """
    with clear_errors():
        names = list(FIGURES) if name == "all" else [name]
        for one in names:
            folder = (out or Path("results")) / (f"{one}-quick" if quick else one)
            _reproduce(one, out if out and name != "all" else folder, quick=quick, jobs=jobs)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that bsfl run wrote.")],
) -> None:
    """Write report.html, figures and summary.json of finished results again.

    Example: bsfl report results/demo
    """
    with clear_errors():
        console.print(summary_table(write_report(open_results(folder))))
        _say_where("report.html, figures and summary.json", folder)


@app.command()
def leaderboard(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(help="Scenarios that train. [the eight of docs/leaderboard.md]"),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", help="Who competes; repeat it for more. [all but the genie]"),
    ] = None,
    seeds: Seeds = None,
    tune: Annotated[
        int,
        typer.Option(
            help="Settings that each policy may try; 1: its defaults.", min=1, max=MOST_TRIES
        ),
    ] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, for a look.")] = False,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Let all policies compete in the same scenarios, eight unless you name some, and rank them.

    Example: bsfl leaderboard phones-iid flaky --policy bsfl --policy random --tune 4
    """
    with clear_errors():
        found = [find_scenario(name) for name in scenarios or ARENA]
        folder = out or Path("results") / ("leaderboard-quick" if quick else "leaderboard")
        board = run_leaderboard(
            [quick_version(one) for one in found] if quick else found,
            folder,
            policies=policies or list(COMPETITORS),
            seeds=seeds,
            tune=tune,
            jobs=jobs,
            watch=lambda results: watch(results, errors),
        )
        page = write_leaderboard(board, folder)
        for part in board["scenarios"].values():
            console.print(leaderboard_table(part))
        console.print(f"the whole leaderboard is in {page}", soft_wrap=True, highlight=False)


@app.command()
def ablation(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(ABLATIONS)}.")],
    seeds: Seeds = None,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Measure what one of BSFL's options buys; nothing is trained.

    Example: bsfl ablation drift --seeds 5
    """
    with clear_errors():
        checks.one_of("name", name, tuple(ABLATIONS))
        folder = out or Path("results") / f"ablation-{name}"
        found = run_ablation(
            name, folder, seeds=seeds, jobs=jobs, watch=lambda results: watch(results, errors)
        )
        rows = ABLATIONS[name].rows(found)
        text = markdown_table(rows)
        replace_file(folder / "ablation.json", (json.dumps(rows, indent=2) + "\n").encode())
        replace_file(folder / "ablation.md", text.encode())
        if name == "radius":
            save(radius_figure(found), folder, "radius")
        console.print(rows_table(ABLATIONS[name].about, rows))
        _say_where("ablation.md and ablation.json", folder)


@app.command()
def tune(
    latencies: Annotated[
        Path, typer.Option("--latencies", help="CSV with the columns client,latency_s.")
    ],
    cohort_size: Annotated[int, typer.Option("--cohort-size", help="Clients in a round.", min=1)],
    floor: Annotated[
        float, typer.Option(help="Least part of its fair share that a client shall have.")
    ] = 0.8,
    deadline_s: Annotated[
        float | None, typer.Option("--deadline", help="Seconds. [longest latency in the log]")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds to simulate.", min=1)] = 1000,
    seeds: Annotated[int, typer.Option(help="Simulations of each setting.", min=1)] = 3,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Recommend a setting of BSFL for your own clients, from a log of their latencies.

    Example: bsfl tune --latencies log.csv --cohort-size 20
    """
    with clear_errors():
        checks.between("floor", floor, 0.0, 1.0)
        folder = out or Path("results") / "tune"
        log = read_log(latencies, deadline_s)
        with errors.status(f"simulating {len(log.latencies):,} clients ..."):
            trials = try_settings(
                log, cohort_size=cohort_size, rounds=rounds, seeds=seeds, jobs=jobs
            )
        best = recommended(trials, floor)
        save(tuning_figure(trials, best, floor), folder, "tune")
        settings = {**best.settings, "tau_max": log.tau_max}
        content = {"floor": floor, "recommended": {**best.as_json(), "settings": settings}}
        content["trials"] = [trial.as_json() for trial in trials]
        replace_file(folder / "tune.json", (json.dumps(content, indent=2) + "\n").encode())
        console.print(tuning_table(trials, best))
        if best.least_share < floor:
            console.print(f"no setting keeps everybody at {floor:.0%}; this comes closest:")
        arguments = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        console.print(f"recommended: BSFL({arguments})", soft_wrap=True, highlight=False)
        console.print(
            f"expected: {saved_percent(best)} of the time of random selection saved, nobody below "
            f"{best.least_share:.0%} of its share",
            soft_wrap=True,
            highlight=False,
        )
        _say_where("tune.png and tune.json", folder)


def _reproduce(name: str, folder: Path, *, quick: bool, jobs: int) -> None:
    scenario = figure_scenario(name, quick=quick)
    if scenario:
        _run_and_report(scenario, folder, seeds=None, jobs=jobs)
        return
    with errors.status(f"reproducing {name} ..."):
        summary = make_study(name, folder, quick=quick, jobs=jobs)
    if "tournament" in summary:
        console.print(annealing_table(summary))
    _say_where("figures and summary.json", folder)


def _run_and_report(scenario: Scenario, folder: Path, *, seeds: int | None, jobs: int) -> None:
    with watch(Results(folder, scenario, seeds or scenario.seeds), errors):
        results = run_scenario(scenario, folder, seeds=seeds, jobs=jobs)
    console.print(summary_table(write_report(results)))
    _say_where("report.html, figures and summary.json", folder)


def _say_where(what: str, folder: Path) -> None:
    console.print(f"{what} are in {folder}", soft_wrap=True, highlight=False)
