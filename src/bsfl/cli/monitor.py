"""The commands for operators: inspect a saved scheduler, watch a journal, show an effect."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len

from bsfl.cli.terminal import clear_errors, say
from bsfl.errors import InvalidInput


def inspect(
    file: Annotated[Path, typer.Argument(help="A file written by Scheduler.save.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write everything to this HTML page. [none]")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", help="Show only this client. [all]")
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort", help="Column to sort by, descending; prefix it with - for ascending."
        ),
    ] = "latency_s",
    rows: Annotated[
        int, typer.Option("--rows", help="Number of clients to show; 0: all.", min=0)
    ] = 20,
) -> None:
    """Show what a saved scheduler knows about its clients.

    Example: bsfl inspect server.bsfl --sort timeouts
    """
    with clear_errors():
        from bsfl.monitoring import COLUMNS
        from bsfl.scheduler import Scheduler

        if sort.removeprefix("-") not in COLUMNS:
            raise InvalidInput(f"--sort must be one of {', '.join(COLUMNS)}, got {sort!r}")
        scheduler = Scheduler.load(file, read_only=True)
        table = scheduler.table()
        if client is not None:
            table[:] = [row for row in table if str(row["client"]) == client]
            if not table:
                raise InvalidInput(f"no client {client!r} in {file}")
        if html is not None:
            from bsfl.dashboard.inspect import inspected_page

            html.write_text(inspected_page(file.name, scheduler.summary(), table), "utf-8")
            say(f"wrote {html}")
            return
        if as_json:
            last = scheduler.last_round
            about: dict[str, Any] = {
                "policy": repr(scheduler.policy),
                "round": scheduler.round,
                "cohort_size": scheduler.cohort_size,
                "diagnostics": scheduler.diagnostics(),
                "last_round": None if last is None else dataclasses.asdict(last),
            }
            typer.echo(json.dumps({**about, "clients": table}))
            return
        say(scheduler.summary())
        _show(table, sort, rows)


def effect(
    journal: Annotated[Path, typer.Argument(help="A journal written by Scheduler(journal=...).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
) -> None:
    """Compare two policies that alternated in a journal.

    The rounds must have been selected by bsfl.Alternating, which changes the policy in random
    blocks of rounds.

    Example: bsfl effect rounds.jsonl
    """
    with clear_errors():
        from bsfl.monitoring.effect import journal_effect

        found = journal_effect(journal)
        say(json.dumps(found.as_json()) if as_json else str(found))


def watch(
    journal: Annotated[Path, typer.Argument(help="A journal written by Scheduler(journal=...).")],
    port: Annotated[
        int, typer.Option("--port", help="Port to serve on; 0: any free port.", min=0, max=65535)
    ] = 8571,
    host: Annotated[
        str,
        typer.Option(
            "--host", help="Address to serve on; the default is visible on this machine only."
        ),
    ] = "127.0.0.1",
) -> None:
    """Show a journal as a live page on this machine.

    The page shows how long rounds take and what random selection would have taken, which clients
    are slow, unreliable or rarely selected, and what the policy has learned. It only reads.

    Example: bsfl watch rounds.jsonl
    """
    with clear_errors():
        from bsfl.dashboard.watch import server
        from bsfl.monitoring.journal import check_journal

        if not journal.exists():
            raise InvalidInput(f"{journal} does not exist")
        check_journal(journal)
        try:
            page = server(journal, port, host)
        except OSError as error:
            raise InvalidInput(f"cannot serve on {host}:{port}: {error.strerror}") from None
        with page:
            say(f"http://{host}:{page.server_port}/ shows {journal}; stop with Ctrl-C")
            try:
                page.serve_forever()
            except KeyboardInterrupt:
                say("")


def _show(table: list[dict[str, Any]], sort: str, n_rows: int) -> None:
    """Print the first rows sorted by a column; rows without a value come last."""
    from bsfl.monitoring.table import COLUMNS
    from bsfl.monitoring.words import figure, named

    def latency(row: dict[str, Any]) -> str:
        if row["latency_s"] is None:
            return ""
        return f"{figure(row['latency_s'])} ({figure(row['low_s'])} - {figure(row['high_s'])})"

    has_left = not all(row["member"] for row in table)
    column, is_ascending = sort.removeprefix("-"), sort.startswith("-")
    known = [row for row in table if row[column] is not None]
    known.sort(key=lambda row: row[column], reverse=not is_ascending)
    ordered = known + [row for row in table if row[column] is None]
    names = [name for name in list(COLUMNS)[6:] if any(row[name] for row in table)]
    heads = ["client", "latency (s)", *names, *["member"] * has_left]
    above, _, below = zip(*(head.rpartition("_") for head in heads), strict=True)
    lines = [above, below]
    for row in ordered[: n_rows or None]:
        cells = [latency(row), *("" if row[x] is None else figure(row[x]) for x in names)]
        lines.append((named(row["client"]), *cells, *["yes" if row["member"] else "no"] * has_left))
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines[not any(above) :]:
        cells = [first + " " * (widths[0] - cell_len(first)), *map(str.rjust, others, widths[1:])]
        say("  ".join(cells))
    if n_rows and len(ordered) > n_rows:
        say(f"{len(ordered) - n_rows:,} more; --rows 0 shows all, --json has all")
