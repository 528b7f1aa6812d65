"""Summaries as tables on the terminal."""

from typing import Any

from rich.table import Table


def summary_table(summary: dict[str, Any]) -> Table:
    """Return one row per policy."""
    table = Table(
        title=f"{summary['title']}: K = {summary['n_clients']}, m = {summary['cohort_size']}, "
        f"{summary['rounds']:,} rounds, {summary['seeds']} seeds (± 95 %)",
        title_justify="left",
    )
    has_regret = "theorem_1_bound" in summary
    table.add_column("policy")
    for name in ("virtual time", "mean round", "speed-up", "Gini", "least share", "most share"):
        table.add_column(name, justify="right")
    if has_regret:
        table.add_column("regret", justify="right")
        table.add_column("growth", justify="right")
    for label, row in summary["policies"].items():
        cells = [
            label,
            _cell(row["total_time_s"], "{:,.0f} s"),
            _cell(row["mean_round_s"], "{:.3g} s", with_interval=False),
            _cell(row["speed_up"], "{:.2f} x"),
            _cell(row["gini"], "{:.3f}"),
            _cell(row["min_share"], "{:.2f}", with_interval=False),
            _cell(row["max_share"], "{:.2f}", with_interval=False),
        ]
        if has_regret:
            cells.append(_cell(row["regret"], "{:,.0f}"))
            cells.append(_cell(row["growth_exponent_last_decade"], "{:.2f}"))
        table.add_row(*cells)
    table.caption = "shares: 1 is a fair share of the selections"
    if has_regret:
        table.caption += "; growth: exponent of regret over the last decade of rounds"
    table.caption_justify = "left"
    return table


def annealing_table(summary: dict[str, Any]) -> Table:
    """Return one row per proposal."""
    games = summary["tournament"]
    table = Table(
        title=f"{games['instances']:,} random instances, {games['steps']:,} steps; "
        f"the paper: ALSA above SA in {summary['paper_win_rate_alsa_over_sa']:.1%}",
        title_justify="left",
    )
    table.add_column("proposal")
    for state in ("last state", "best state"):
        table.add_column(f"wins over swap, {state}", justify="right")
        table.add_column(f"gap, {state}", justify="right")
    for proposal, row in games["proposals"].items():
        cells = [proposal]
        for state in ("last_state", "best_state"):
            wins = row[state]["win_rate_over_swap"]
            cells.append("" if wins is None else f"{wins:.1%}")
            cells.append(f"{row[state]['mean_gap']['mean']:.1%}")
        table.add_row(*cells)
    table.caption = "gap: 0 % is the exact optimum, 100 % a random cohort"
    table.caption_justify = "left"
    return table


def _cell(value: dict[str, float] | None, form: str, *, with_interval: bool = True) -> str:
    if value is None or value["mean"] is None:
        return ""
    text = form.format(value["mean"])
    if with_interval and value["low"] is not None:
        unit = form.partition("}")[2]
        half = form.partition("}")[0] + "}"
        text = text.removesuffix(unit) + " ± " + half.format(value["high"] - value["mean"]) + unit
    return text
