"""The commands that conduct a study."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bsfl import checks, cli
from bsfl.cli.terminal import (
    Backend,
    Jobs,
    Out,
    Quick,
    Seeds,
    clear_errors,
    policy_names,
    say,
    scenario_names,
)
from bsfl.errors import InvalidInput
from bsfl.extras import on_cluster, require
from bsfl.registry import nearest
from bsfl.studies import ABLATIONS, FIGURES, PAPER_SCENARIOS, STUDIES


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="A figure from bsfl scenarios, or all.",
            autocompletion=lambda: [*PAPER_SCENARIOS, *FIGURES, "all"],
        ),
    ],
    quick: Quick = False,
    jobs: Jobs = -1,
    backend: Backend = None,
    out: Out = None,
) -> None:
    """Make one of the paper's figures again, or all of them.

    Example: bsfl reproduce annealing --quick --out results/annealing-quick
    """
    known = (*PAPER_SCENARIOS, *FIGURES)
    with clear_errors():
        _check("figure", name, (*known, "all"))
        for one in known if name == "all" else (name,):
            own = f"{one}-quick" if quick else one
            folder = out / own if out and name == "all" else out
            study, settings = ("scenario", {"name": one}) if one in PAPER_SCENARIOS else (one, {})
            _conduct(study, settings, folder or own, backend, quick=quick, jobs=jobs)


def leaderboard(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            help="Scenarios that train. [the nine of docs/leaderboard.md]",
            autocompletion=scenario_names,
        ),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            help="Who competes; repeat it for more. [all but the genie]",
            autocompletion=policy_names,
        ),
    ] = None,
    seeds: Seeds = None,
    tune: Annotated[
        int, typer.Option(help="Settings that each policy may try; 1: its defaults.", min=1)
    ] = 1,
    rounds: Annotated[
        str,
        typer.Option(
            help="How rounds close: over-selection (the first m of 1.3 m answers), barrier (the "
            "last answer) or 'no barrier'."
        ),
    ] = "over-selection",
    engine: Annotated[
        str | None, typer.Option(help="What trains: jax or fast. [as the scenario says]")
    ] = None,
    quick: Quick = False,
    jobs: Jobs = -1,
    backend: Backend = None,
    out: Out = None,
) -> None:
    """Let all policies compete in the same scenarios.

    Example: bsfl leaderboard phones-iid flaky --policy bsfl --policy random --tune 4
    """
    with clear_errors():
        folder = out or ("leaderboard-quick" if quick else "leaderboard")
        settings: dict[str, Any] = {"tune": tune, "rounds": rounds, "engine": engine}
        settings |= {"scenarios": tuple(scenarios)} if scenarios else {}
        settings |= {"policies": tuple(policies)} if policies else {}
        _conduct("leaderboard", settings, folder, backend, seeds=seeds, quick=quick, jobs=jobs)


def ablation(
    name: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(ABLATIONS)}.", autocompletion=lambda: list(ABLATIONS)
        ),
    ],
    seeds: Seeds = None,
    jobs: Jobs = -1,
    backend: Backend = None,
    out: Out = None,
) -> None:
    """Measure what one choice buys, such as how rounds close.

    Those about rounds and liars train; the others are about options of BSFL.

    Example: bsfl ablation drift --seeds 5
    """
    with clear_errors():
        _check("ablation", name, ABLATIONS)
        _conduct(name, {}, out or f"ablation-{name}", backend, seeds=seeds, jobs=jobs)


Floor = Annotated[
    float, typer.Option(help="Least part of its fair share that a client shall have.")
]
Deadline = Annotated[float | None, typer.Option("--deadline", help="Seconds. [as the log shows]")]
Rounds = Annotated[int, typer.Option(help="Rounds to simulate.", min=1)]


def advise(
    log: Annotated[
        Path,
        typer.Argument(
            help="CSV with a header, a row for each answer (client, latency; also outcome, "
            "timestamp, loss), or a journal of a Scheduler."
        ),
    ],
    cohort_size: Annotated[
        int | None,
        typer.Option(
            help="Answers that a round wants. [as in the journal, or a tenth of the clients]", min=1
        ),
    ] = None,
    floor: Floor = 0.8,
    deadline_s: Deadline = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            help="Compare this one alone; repeat it for more. [all that a log can judge]",
            autocompletion=policy_names,
        ),
    ] = None,
    client_column: Annotated[
        str | None, typer.Option(help="Column with the client. [guessed, as all of these]")
    ] = None,
    latency_column: Annotated[
        str | None, typer.Option(help="Column with the latency; seconds, or as in latency_ms.")
    ] = None,
    outcome_column: Annotated[
        str | None, typer.Option(help="Column with ok, timeout, failed or late.")
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Column with the time of a row, a number or ISO 8601.")
    ] = None,
    loss_column: Annotated[str | None, typer.Option(help="Column with the loss.")] = None,
    ids: Annotated[
        str, typer.Option(help="What ids of a CSV are: text, int or auto (int if all look so).")
    ] = "auto",
    rounds: Rounds = 500,
    seeds: Annotated[int, typer.Option(help="Fleets resampled from the log.", min=1)] = 5,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Recommend policy and settings for your own clients.

    It plays policies, invitations and deadlines on fleets resampled from a log; stopped, it goes
    on where it was when the same command is given again. Example: bsfl advise rounds.jsonl
    """
    with clear_errors():
        from bsfl.fleet.answer_log import Columns

        columns = Columns(
            client=client_column,
            latency=latency_column,
            outcome=outcome_column,
            time=time_column,
            loss=loss_column,
        )
        settings: dict[str, Any] = {"log": log, "cohort_size": cohort_size, "floor": floor}
        settings |= {"deadline_s": deadline_s, "rounds": rounds, "columns": columns, "ids": ids}
        settings |= {"policies": tuple(policies)} if policies else {}
        _conduct("advise", settings, out or f"advice-{log.stem}", None, seeds=seeds, jobs=jobs)


def tune(
    latencies: Annotated[Path, typer.Option("--latencies", help="The log.")],
    cohort_size: Annotated[int, typer.Option(help="Answers that a round wants.", min=1)],
    floor: Floor = 0.8,
    deadline_s: Deadline = None,
    rounds: Rounds = 1000,
    seeds: Annotated[int, typer.Option(help="Fleets resampled from the log.", min=1)] = 3,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Do what `bsfl advise` does; this was its name."""
    advise(
        latencies,
        cohort_size,
        floor,
        deadline_s,
        rounds=rounds,
        seeds=seeds,
        jobs=jobs,
        out=out or Path("results", "tune"),
    )


def _conduct(
    study: str, settings: dict[str, Any], out: Path | str, backend: str | None, **effort: Any
) -> None:
    """Play a study, write what came out (a name is a folder of results/) and print it."""
    require(*cli.SIMULATOR, *cli.FIGURES)
    made = STUDIES.make(study, **settings)
    from bsfl.cli.findings import check_folder, steps, write_and_show
    from bsfl.runs import watch
    from bsfl.studies.study import Effort

    folder = checks.folder(Path("results", out) if isinstance(out, str) else out)
    check_folder(folder, has_runs=study == "scenario")
    shown = partial(watch, jobs=effort["jobs"])
    with on_cluster(backend):
        findings = made.play(folder, Effort(watch=shown, steps=steps, say=say, **effort))
    write_and_show(findings, folder)


def _check(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise InvalidInput(f"unknown {what} {name!r}{nearest(name, known)}")
