"""The commands of an operator: look into a saved scheduler, follow a journal."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from bsfl.cli.terminal import clear_errors, console, say
from bsfl.errors import InvalidInput

WIDEST = 1000
"""Columns of a terminal that hold any table."""


def inspect(
    file: Annotated[Path, typer.Argument(help="A file that Scheduler.save wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write everything to this page. [none]")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", help="Show this client alone. [all]")
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", help="Column to sort by; a - before it: rising.")
    ] = "latency_s",
    rows: Annotated[int, typer.Option("--rows", help="Clients to show; 0: all.", min=0)] = 20,
) -> None:
    """Show what a saved scheduler knows of its clients.

    Example: bsfl inspect server.bsfl --sort timeouts
    """
    with clear_errors():
        from bsfl.monitor import COLUMNS
        from bsfl.monitor.page import inspected_page
        from bsfl.scheduler import Scheduler

        if sort.removeprefix("-") not in COLUMNS:
            raise InvalidInput(f"--sort must be one of {', '.join(COLUMNS)}, got {sort!r}")
        scheduler = Scheduler.load(file)
        table = scheduler.table()
        if client is not None:
            table[:] = [row for row in table if str(row["client"]) == client]
            if not table:
                raise InvalidInput(f"no client {client!r} in {file}")
        if html is not None:
            html.write_text(inspected_page(file.name, scheduler.summary(), table), "utf-8")
            say(f"wrote {html}")
            return
        if as_json:
            last = scheduler.last_round
            about = {"policy": repr(scheduler.policy), "t": scheduler.t}
            about |= {"cohort_size": scheduler.cohort_size, "figures": scheduler.figures()}
            about["last_round"] = None if last is None else dataclasses.asdict(last)
            typer.echo(json.dumps({**about, "clients": table}))
            return
        say(scheduler.summary())
        _show(table, sort, rows)


def watch(
    journal: Annotated[Path, typer.Argument(help="A journal, as of Scheduler(journal=...).")],
    port: Annotated[
        int, typer.Option("--port", help="0: any that is free.", min=0, max=65535)
    ] = 8571,
    host: Annotated[
        str, typer.Option("--host", help="Address to serve on; another shows it to others.")
    ] = "127.0.0.1",
) -> None:
    """Show a journal as a live page on this machine.

    The page has round times, stragglers and participation. It reads the file and nothing else.

    Example: bsfl watch rounds.jsonl
    """
    with clear_errors():
        from bsfl.monitor.journal import check_journal
        from bsfl.monitor.watch import server

        if not journal.exists():
            raise InvalidInput(f"{journal} is not there")
        check_journal(journal)
        try:
            page = server(journal, port, host)
        except OSError as error:
            raise InvalidInput(f"cannot serve on {host}:{port}: {error.strerror}") from None
        with page:
            say(f"http://{host}:{page.server_port}/ shows {journal}; Ctrl-C ends it")
            try:
                page.serve_forever()
            except KeyboardInterrupt:
                say("")


def _show(table: list[dict[str, Any]], sort: str, n_rows: int) -> None:
    """Print the first rows by a column, those without a value last."""
    from bsfl.monitor.inspect import COLUMNS
    from bsfl.monitor.words import figure, named

    def latency(row: dict[str, Any]) -> str:
        if row["latency_s"] is None:
            return ""
        return f"{figure(row['latency_s'])} ({figure(row['low_s'])} - {figure(row['high_s'])})"

    has_left = not all(row["member"] for row in table)
    column, is_rising = sort.removeprefix("-"), sort.startswith("-")
    known = [row for row in table if row[column] is not None]
    known.sort(key=lambda row: row[column], reverse=not is_rising)
    ordered = known + [row for row in table if row[column] is None]
    shown = Table(box=None, pad_edge=False)
    shown.add_column("client", overflow="fold", min_width=10)
    names = [name for name in list(COLUMNS)[5:] if any(row[name] for row in table)]
    for name in ("latency (s)", *names, *(["member"] if has_left else [])):
        shown.add_column(name.replace("last_chosen", "last"), justify="right", no_wrap=True)
    for row in ordered[: n_rows or None]:
        cells = [latency(row), *("" if row[x] is None else figure(row[x]) for x in names)]
        cells += ["yes" if row["member"] else "no"] * has_left
        shown.add_row(Text(named(row["client"])), *map(Text, cells))
    needed = console.measure(shown, options=console.options.update(width=WIDEST)).minimum
    console.print(shown, width=max(needed, console.width), crop=False, soft_wrap=True)
    if n_rows and len(ordered) > n_rows:
        say(f"{len(ordered) - n_rows:,} more; --rows 0 shows all, --json has all")
