"""Tables hold numbers; text, order and the best of a column are made where they are shown."""

import re

import numpy as np
import pytest
from rich.console import Console

from bsfl.cli.reports import drawn
from bsfl.errors import InvalidInput
from bsfl.experiments.metrics import METRICS
from bsfl.experiments.statistics import Interval
from bsfl.experiments.tables import Column, Table, summary_table
from bsfl.report.report import html_table
from given_summary import summary

TABLE = Table(
    title="t",
    columns=[
        Column("policy"),
        Column("time_s", "less", about="how long"),
        Column("gini", "less", form=".2f"),
        Column("rounds", form=",.0f"),
    ],
    rows=[
        ["a", Interval(1200.0, 1197.0, 1203.0), 0.101, 3],
        ["b", Interval(900.0, np.nan, np.nan), 0.104, 4],
        ["<g>", 5.0, 0.2, None],
    ],
    note="one\ntwo",
    aside=[2],
)


def test_the_best_of_a_column_is_marked_and_an_oracle_does_not_compete():
    assert TABLE.best() == {(1, 1)}, "two that look alike are not better"
    assert "| b | **900** | 0.10 | 4 |" in TABLE.to_markdown()
    assert "| <g> * | 5.00 | 0.20 | – |" in TABLE.to_markdown()


@pytest.mark.parametrize(
    ("values", "better", "best"),
    [
        ([3.0, Interval(2.0, 1.0, 3.0), 2.001, None], "less", {1, 2}),
        ([3.0, Interval(2.0, 1.0, 3.0), 2.001, None], "more", {0}),
        ([3.0, 2.0], None, set()),
        ([3.0, 3.001], "less", set()),
        ([3.0, np.inf, np.nan], "more", set()),
        (["1", "2"], "less", set()),
        ([-2.0, 1e7], "less", {0}),
    ],
)
def test_the_best_are_all_that_look_like_the_best(values, better, best):
    columns = [Column("policy"), Column("x", better)]
    table = Table(title="", columns=columns, rows=[["p", value] for value in values])
    assert table.best() == {(i, 1) for i in best}


def test_plain_text_is_aligned_under_its_title_and_over_its_note():
    assert str(TABLE).splitlines() == [
        "t",
        "",
        "policy     time_s  gini  rounds",
        "a       1,200 ± 3  0.10       3",
        "b             900  0.10       4",
        "<g> *        5.00  0.20       –",
        "",
        "one",
        "two",
    ]
    assert repr(TABLE) == str(TABLE)


def test_html_sorts_by_numbers_and_a_notebook_shows_the_same():
    html = html_table(TABLE)
    assert '<td data-key="1200.0">1,200 ± 3</td>' in html
    assert '<td data-key="900.0" class=best>900</td>' in html
    assert '<td data-key="">–</td>' in html, "no number comes last"
    assert "&lt;g&gt; *" in html
    assert "how long" in html
    notebook = TABLE._repr_html_()
    assert re.findall("<b>(.*?)</b>", notebook) == ["900"]
    assert notebook.count("<tr>") == 4
    assert '<th title="how long">time_s</th>' in notebook
    assert "<g>" not in notebook


def test_a_terminal_breaks_long_names_at_underscores():
    columns = [Column(title) for title in ("policy", "time_to_target_s", "min_participation")]
    table = Table(title="", columns=columns, rows=[["a", 1, 2]])
    console = Console(width=60)
    with console.capture() as capture:
        console.print(drawn(table))
    assert capture.get().split()[:5] == ["time_to_", "min_", "policy", "target_s", "participation"]


def test_columns_are_those_of_the_data_frame_and_explained():
    made = summary(a=[1, 2], random=[3, 4])
    for view in ("report", "leaderboard", "training"):
        columns = summary_table(made, view).columns
        assert {column.title for column in columns} <= set(made.rows()[0]), view
        assert all(column.about == METRICS[column.title].about for column in columns[1:])
    table = summary_table(made, "report", metrics=["mean_round_s", "accuracy"])
    assert [column.title for column in table.columns] == ["policy", "mean_round_s", "accuracy"]
    with pytest.raises(InvalidInput, match="'ginny'"):
        summary_table(made, "report", metrics=["ginny"])


def test_the_leaderboard_begins_with_the_best_and_stars_oracles():
    made = summary(slow=[9, 8, 9], never=[1, np.inf, 1], quick=[4, 5, 4], genie=[1, 1, 1])
    table = summary_table(made, "leaderboard", "a note")
    assert [row[0] for row in table.rows] == ["genie", "quick", "slow", "never"]
    assert [texts[0] for texts in table.texts()] == ["genie *", "quick", "slow", "never"]
    assert table.note == "*: knows the true speeds\na note"
    time = [column.title for column in table.columns].index("time_to_target_s")
    reached = [column.title for column in table.columns].index("reached_target")
    assert table.rows[3][time] is None
    assert table.texts()[3][reached] == "67%"
    assert {place for place in table.best() if place[1] == time} == {(1, time)}


@pytest.mark.parametrize(
    ("a", "b", "best"),
    [
        ([1.0, 2.0, 3.0], [2.0, 3.1, 3.9], {0}),  # differences 1, 1.1, 0.9
        ([1.0, 2.0, 3.0], [4.0, 2.5, 2.9], set()),  # the mean is lower, the interval holds 0
        ([1.0], [2.0], set()),  # one seed shows nothing
    ],
)
def test_only_what_is_significantly_the_best_is_bold(a, b, best):
    table = summary_table(summary(a=a, b=b, genie=[0.5] * len(a)), "report")
    time = [column.title for column in table.columns].index("time_to_target_s")
    assert {i for i, j in table.best() if j == time} == best
    chosen = table.select({"time_to_target_s": "Time (s)"})
    assert chosen.best() == {(i, 1) for i in best}, "also under another heading"
    assert ("significantly" in table.to_markdown()) == bool(best)


def test_latex_has_chosen_columns_and_headings():
    columns = [Column("policy"), Column("time_s", "less"), Column("gini", "less")]
    rows = [["a_b", Interval(1200.0, 1197.0, 1203.0), 0.1], ["c", 900.0, None]]
    table = Table(title="t", columns=columns, rows=rows)
    chosen = {"gini": "Gini", "time_s": "Time [s] (50 %)"}
    assert table.to_latex(chosen, caption="A & B", label="tab:x").splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{A \& B}",
        r"\label{tab:x}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"policy & Gini & Time [s] (50 \%) \\",
        r"\midrule",
        r"a\_b & 0.100 & 1,200 $\pm$ 3 \\",
        r"c & -- & \textbf{900} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    assert table.to_latex(["gini"]).startswith(r"\begin{tabular}{lr}")
    with pytest.raises(InvalidInput, match="'gino'; did you mean 'gini'"):
        table.to_latex(["gino"])


def test_a_data_frame_has_numbers_and_the_ends_of_intervals():
    frame = TABLE.to_frame(["time_s", "gini"])
    assert list(frame) == ["policy", "time_s", "time_s_low", "time_s_high", "gini"]
    assert frame["time_s"].tolist() == [1200.0, 900.0, 5.0]
    assert frame["time_s_high"][0] == 1203.0
