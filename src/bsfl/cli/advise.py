"""The command that recommends a policy from a log."""

from pathlib import Path
from typing import Annotated

import typer

from bsfl import cli, validation
from bsfl.cli.terminal import Jobs, Out, clear_errors, policy_names, say
from bsfl.errors import InvalidInput
from bsfl.extras import require


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
    min_participation: Annotated[
        float,
        typer.Option(
            help="Minimum participation of every client, as a fraction of its fair count."
        ),
    ] = 0.8,
    deadline_s: Annotated[
        float | None,
        typer.Option("--deadline", help="Deadline of a round in seconds. [from the log]"),
    ] = None,
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
    latency_column: Annotated[str | None, typer.Option(help="Column with the latency.")] = None,
    outcome_column: Annotated[
        str | None, typer.Option(help="Column with ok, timeout, failed or late.")
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Column with the time of a row, a number or a date.")
    ] = None,
    loss_column: Annotated[str | None, typer.Option(help="Column with the loss.")] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="Unit of the latency: s, ms, us, ns or min. [as in latency_ms, or s]"),
    ] = None,
    outcomes: Annotated[
        list[str] | None,
        typer.Option(
            "--outcome",
            help="What a word in the outcome column means, as in ERR_NETWORK=failed. Repeat the "
            "option for several.",
        ),
    ] = None,
    ids: Annotated[
        str,
        typer.Option(
            help="Type of the ids in a CSV: text, int or auto (int if all ids are integers)."
        ),
    ] = "auto",
    rounds: Annotated[int, typer.Option(help="Rounds to simulate.", min=1)] = 500,
    seeds: Annotated[
        int, typer.Option(help="Client populations resampled from the log.", min=1)
    ] = 5,
    state: Annotated[
        Path | None,
        typer.Option(
            help="File for a scheduler with the recommended setting and the statistics of each "
            "client in the log. [none]"
        ),
    ] = None,
    jobs: Jobs = -1,
    out: Out = None,
) -> None:
    """Recommend a policy and its settings for your clients.

    It simulates policies, invitations and deadlines with clients resampled from a log. An
    interrupted search resumes when the same command is run again.

    Example: bsfl advise rounds.jsonl
    """
    with clear_errors():
        require(*cli.SIMULATOR, *cli.FIGURES)
        from bsfl.advisor import CsvFormat, read_log
        from bsfl.advisor import advise as advice_on
        from bsfl.cli.reports import check_folder, write_and_show

        layout = CsvFormat(
            client=client_column,
            latency=latency_column,
            outcome=outcome_column,
            time=time_column,
            loss=loss_column,
            unit=unit,
            outcomes=_meanings(outcomes or []),
        )
        folder = validation.folder(out or Path("results", f"advice-{log.stem}"))
        check_folder(folder, has_runs=False)
        if state is not None and state.exists():
            raise InvalidInput(f"{state} exists already; choose another --state, or delete it")
        if state is not None and not state.parent.is_dir():
            raise InvalidInput(f"--state: there is no folder {state.parent}")
        found = read_log(log, deadline_s=deadline_s, layout=layout, ids=ids)
        say(f"{log}: {found.words()}")
        advice = advice_on(
            found,
            folder,
            cohort_size=cohort_size,
            min_participation=min_participation,
            rounds=rounds,
            policies=policies,
            seeds=seeds,
            jobs=jobs,
            progress=True,
        )
        write_and_show(advice.report(), folder)
        if state is not None:
            advice.scheduler().save(state)
            say(f"Warm start with the statistics of each client: Scheduler.load({str(state)!r})")


def _meanings(options: list[str]) -> dict[str, str]:
    """Return what each word for an outcome means."""
    found = {}
    for option in options:
        word, equals, meaning = option.rpartition("=")
        if not equals or not word:
            raise InvalidInput(f"--outcome must be WORD=failed or the like, got {option!r}")
        found[word] = meaning
    return found
