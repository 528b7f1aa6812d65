"""Summaries as tables on the terminal."""

from dataclasses import astuple
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from bsfl.analysis.statistics import THREE_DIGITS, Interval, cells_of, seeds_in_words, shown
from bsfl.analysis.summary import length
from bsfl.studies.leaderboard_page import COLUMNS, cells, ranked
from bsfl.studies.tuning import Trial


def summary_table(summary: dict[str, Any]) -> Table:
    """Return one row per policy, narrow enough for a terminal of 80 columns."""
    table = _table(
        f"{summary['title']}: K = {summary['n_clients']}, m = {summary['cohort_size']}, "
        f"{length(summary)}, {seeds_in_words(summary['seeds'], ' (± 95 %)')}"
    )
    if "target" in summary:
        return _learning_rows(table, summary)
    has_regret = "theorem_1_bound" in summary
    names = ["time (s)", "speed-up", "Gini", "shares"] + has_regret * ["regret", "growth"]
    for name in ("policy", *names):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for label, row in summary["policies"].items():
        cells = [
            shown(row["total_time_s"], ",.0f", with_interval=False),
            shown(row["speed_up"], ".2f", with_interval=True),
            shown(row["gini"], ".3f", with_interval=False),
            " - ".join(
                shown(row[key], ".2f", with_interval=False) for key in ("min_share", "max_share")
            ),
        ]
        if has_regret:
            cells.append(shown(row["regret"], ",.0f", with_interval=False))
            cells.append(shown(row["growth_exponent_last_decade"], ".2f", with_interval=False))
        table.add_row(Text(label), *cells)
    table.caption = "time: virtual; shares: of a fair share, least to most served client"
    if has_regret:
        table.caption += "\ngrowth: exponent of regret over the last decade of rounds"
    return table


def _learning_rows(table: Table, summary: dict[str, Any]) -> Table:
    target = summary["target"]
    quality = {
        "test_accuracy": ("accuracy", "test_accuracy", ".3f", True),
        "test_loss": ("test loss", "test_loss", ".3g", False),
    }[target["column"]]
    columns = (
        (f"to {target['name']} (s)", "time_to_target_s", ",.0f", False),
        ("speed-up", "target_speed_up", ".2f", True),
        quality,
        ("rounds", "rounds", ",.0f", False),
        ("Gini", "gini", ".3f", False),
    )
    table.add_column("policy")
    for name, *_ in columns:
        table.add_column(name, justify="right")
    for label, row in summary["policies"].items():
        cells = [shown(row[key], form, with_interval=wide) for _, key, form, wide in columns]
        if row["time_to_target_s"] is None:
            cells[0] = f"reached by {row['reached_target']:.0%}"
        table.add_row(Text(label), *cells)
    table.caption = f"time: virtual; {quality[0]}: on test data when the virtual time is used up"
    return table


def annealing_table(summary: dict[str, Any]) -> Table:
    """Return one row per proposal."""
    games = summary["tournament"]
    table = _table(
        f"{games['instances']:,} random instances, {games['steps']:,} steps; "
        f"the paper: ALSA above SA in {summary['paper_win_rate_alsa_over_sa']:.1%}"
    )
    table.add_column("proposal")
    for state in ("last state", "best state"):
        table.add_column(f"{state}: wins", justify="right")
        table.add_column("gap", justify="right")
    for proposal, row in games["proposals"].items():
        cells = [proposal]
        for state in ("last_state", "best_state"):
            wins = row[state]["win_rate_over_swap"]
            cells.append("" if wins is None else f"{wins:.1%}")
            cells.append(f"{row[state]['mean_gap']['mean']:.1%}")
        table.add_row(*cells)
    table.caption = "wins: over swap; gap: 0 % is the exact optimum, 100 % a random cohort"
    return table


def leaderboard_table(part: dict[str, Any]) -> Table:
    """Return one scenario of the leaderboard, narrow enough for a terminal of 80 columns."""
    table = _table(f"{part['title']}: {seeds_in_words(part['seeds'])}, target {part['target']}")
    shown_here = [0, 1, 2, 3, 5, 6]
    for i in shown_here:
        table.add_column(COLUMNS[i], justify="right" if i else "left")
    for label, row in ranked(part["policies"]):
        line = cells(label, row)
        table.add_row(*(Text(line[i].partition(" ±")[0] if i > 2 else line[i]) for i in shown_here))
    return table


def tuning_table(trials: list[Trial], best: Trial) -> Table:
    """Return one row per setting that was tried, with the recommended one marked."""
    table = _table("what each weight costs on these clients (± 95 %)")
    for i, name in enumerate(("index", "alpha", "mean round (s)", "saved", "least share", "Gini")):
        table.add_column(name, justify="right" if i else "left")
    for trial in trials:
        table.add_row(
            Text(trial.index + " *" * (trial is best)),
            f"{trial.settings['alpha']:g}" if trial.settings else "",
            shown(trial.mean_round_s.as_json(), THREE_DIGITS),
            saved_percent(trial),
            f"{trial.least_share:.2f}",
            f"{trial.gini:.3f}",
        )
    table.caption = "saved: of random selection's time; least share: 1 is fair; *: recommended"
    return table


def saved_percent(trial: Trial) -> str:
    """Return how much of random selection's time a setting saves."""
    return shown(Interval(*(100 * v for v in astuple(trial.saved))).as_json(), ".0f") + " %"


def rows_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """Return rows of numbers with intervals."""
    table = _table(title)
    for i, column in enumerate(rows[0]):
        table.add_column(column, justify="right" if i else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in cells_of(row)))
    return table


def _table(title: str) -> Table:
    words = Text(title)  # a title may hold brackets, which are not markup
    return Table(title=words, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
