"""The commands that run a study."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bsfl import cli, validation
from bsfl._core.registry import nearest
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
from bsfl.experiments.parallel import on_cluster
from bsfl.extras import require
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
    """Reproduce one figure of the paper, or all of them.

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
            help="Policy to compare; repeat the option for several. [all but the oracle]",
            autocompletion=policy_names,
        ),
    ] = None,
    seeds: Seeds = None,
    tune: Annotated[
        int,
        typer.Option(
            help="Number of candidate settings to tune each policy over; 1: the defaults.", min=1
        ),
    ] = 1,
    rounds: Annotated[
        str,
        typer.Option(
            help="How rounds close: synchronous (with the last response), over-selection (with "
            "the first m of 1.3 m responses) or asynchronous (never)."
        ),
    ] = "over-selection",
    engine: Annotated[
        str | None, typer.Option(help="Training engine: jax or fast. [from the scenario]")
    ] = None,
    quick: Quick = False,
    jobs: Jobs = -1,
    backend: Backend = None,
    out: Out = None,
) -> None:
    """Compare all policies in the same scenarios.

    Example: bsfl leaderboard phones-iid flaky --policy bsfl --policy random --tune 4
    """
    with clear_errors():
        from bsfl.cli.own_files import check_trust
        from bsfl.experiments.reading import executed_files, read_scenario

        folder = out or ("leaderboard-quick" if quick else "leaderboard")
        settings: dict[str, Any] = {"tune": tune, "rounds": rounds, "engine": engine}
        settings |= {"scenarios": tuple(scenarios)} if scenarios else {}
        settings |= {"policies": tuple(policies)} if policies else {}
        for name in scenarios or ():
            check_trust(executed_files(read_scenario(name)), is_trusted=False)
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
    """Measure the effect of one choice, such as how rounds close.

    The ablations of rounds and malicious clients train models; the others simulate BSFL's options.

    Example: bsfl ablation drift --seeds 5
    """
    with clear_errors():
        _check("ablation", name, ABLATIONS)
        _conduct(name, {}, out or f"ablation-{name}", backend, seeds=seeds, jobs=jobs)


MinParticipation = Annotated[
    float,
    typer.Option(help="Minimum participation of every client, as a fraction of its fair count."),
]
Deadline = Annotated[
    float | None, typer.Option("--deadline", help="Deadline of a round in seconds. [from the log]")
]
Rounds = Annotated[int, typer.Option(help="Rounds to simulate.", min=1)]


def advise(
    log: Annotated[
        Path,
        typer.Argument(
            help="CSV with a header and one row per response (client, latency; optionally "
            "outcome, timestamp, loss), or a journal of a Scheduler."
        ),
    ],
    cohort_size: Annotated[
        int | None,
        typer.Option(
            help="Target responses per round. [from the journal, or a tenth of the clients]", min=1
        ),
    ] = None,
    min_participation: MinParticipation = 0.8,
    deadline_s: Deadline = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            help="Policy to compare; repeat the option for several. [all that a log can evaluate]",
            autocompletion=policy_names,
        ),
    ] = None,
    client_column: Annotated[
        str | None, typer.Option(help="Column with the client. [guessed, like all columns]")
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
        str,
        typer.Option(
            help="Type of the ids in a CSV: text, int or auto (int if all ids are integers)."
        ),
    ] = "auto",
    rounds: Rounds = 500,
    seeds: Annotated[int, typer.Option(help="Fleets resampled from the log.", min=1)] = 5,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Recommend a policy and its settings for your clients.

    It simulates policies, invitations and deadlines on fleets resampled from a log. An interrupted
    search resumes when the same command is run again. Example: bsfl advise rounds.jsonl
    """
    with clear_errors():
        from bsfl.simulation.response_log import Columns

        columns = Columns(
            client=client_column,
            latency=latency_column,
            outcome=outcome_column,
            time=time_column,
            loss=loss_column,
        )
        settings: dict[str, Any] = {"log": log, "cohort_size": cohort_size}
        settings |= {"min_participation": min_participation}
        settings |= {"deadline_s": deadline_s, "rounds": rounds, "columns": columns, "ids": ids}
        settings |= {"policies": tuple(policies)} if policies else {}
        _conduct("advise", settings, out or f"advice-{log.stem}", None, seeds=seeds, jobs=jobs)


def tune(
    latencies: Annotated[Path, typer.Option("--latencies", help="The log.")],
    cohort_size: Annotated[int, typer.Option(help="Target responses per round.", min=1)],
    min_participation: MinParticipation = 0.8,
    deadline_s: Deadline = None,
    rounds: Rounds = 1000,
    seeds: Annotated[int, typer.Option(help="Fleets resampled from the log.", min=1)] = 3,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Run `bsfl advise`, under its former name."""
    advise(
        latencies,
        cohort_size,
        min_participation,
        deadline_s,
        rounds=rounds,
        seeds=seeds,
        jobs=jobs,
        out=out or Path("results", "tune"),
    )


def _conduct(
    study: str, settings: dict[str, Any], out: Path | str, backend: str | None, **effort: Any
) -> None:
    """Run a study, write its report (a name is a folder in results/) and print it."""
    require(*cli.SIMULATOR, *cli.FIGURES)
    made = STUDIES.make(study, **settings)
    from bsfl.cli.reports import check_folder, steps, write_and_show
    from bsfl.studies.study import Effort

    folder = validation.folder(Path("results", out) if isinstance(out, str) else out)
    check_folder(folder, has_runs=study == "scenario")
    with on_cluster(backend):
        report = made.play(folder, Effort(progress=True, steps=steps, say=say, **effort))
    write_and_show(report, folder)


def _check(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise InvalidInput(f"unknown {what} {name!r}{nearest(name, known)}")
