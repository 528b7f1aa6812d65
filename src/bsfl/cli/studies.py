"""The commands that run a study of the paper or of the library."""

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
    scenario_names,
)
from bsfl.errors import InvalidInput
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


def _conduct(
    study: str, settings: dict[str, Any], out: Path | str, backend: str | None, **effort: Any
) -> None:
    """Run a study, write its report (a name is a folder in results/) and print it."""
    require(*cli.SIMULATOR, *cli.FIGURES)
    made = STUDIES.make(study, **settings)
    from bsfl.cli.reports import check_folder, write_and_show
    from bsfl.studies.study import Effort

    folder = validation.folder(Path("results", out) if isinstance(out, str) else out)
    check_folder(folder, has_runs=study == "scenario")
    from bsfl.experiments.parallel import on_cluster

    with on_cluster(backend):
        report = made.play(folder, Effort(progress=True, **effort))
    write_and_show(report, folder)


def _check(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise InvalidInput(f"unknown {what} {name!r}{nearest(name, known)}")
