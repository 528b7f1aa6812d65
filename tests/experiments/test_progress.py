"""What is shown of runs while they are computed: finished ones, what runs now, the time left."""

import io

import pytest

from bsfl.experiments import progress, run_scenario
from bsfl.experiments.progress import Meter, shown
from small_scenario import parse


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def names(n):
    return [f"pace, seed {i}" for i in range(n)]


@pytest.mark.parametrize(
    ("workers", "n_runs", "finished_at", "now_s", "left_s"),
    [
        (1, 4, [10.0], 10.0, 30.0),
        (1, 4, [10.0], 14.0, 26.0),  # it counts down
        (1, 4, [10.0], 99.0, 0.0),
        (2, 12, [60.0, 60.1], 60.1, 300.5),  # the first two of six pairs
        (2, 12, [60.0], 60.0, 360.0),  # the other one of the pair is nearly there
        (4, 2, [5.0], 5.0, 5.0),
        (2, 6, [10.0, 10.0, 20.0], 20.0, 20.0),  # two pairs, and so two are left
    ],
)
def test_the_time_left_by_hand(clock, workers, n_runs, finished_at, now_s, left_s):
    meter = Meter("study", names(n_runs), 0, workers)
    for run, end_s in zip(names(n_runs), finished_at, strict=False):
        clock[0] = end_s
        meter.finished(run)
    clock[0] = now_s
    assert meter.left_s() == pytest.approx(left_s)


def test_a_line_says_what_is_finished_what_runs_and_how_long_the_rest_takes(clock):
    meter = Meter("study", names(5), 3, 2)
    assert str(meter) == "study · 3 of 8 runs · pace, seed 0 and 1 more"
    clock[0] = 50.0
    meter.finished("pace, seed 1")
    assert str(meter) == "study · 4 of 8 runs · pace, seed 0 and 1 more · 1 min 40 s left"
    for run in meter.left[:3]:
        meter.finished(run)
    assert str(meter) == "study · 7 of 8 runs · pace, seed 4 · 25 s left"
    meter.finished("pace, seed 4")
    assert str(meter) == "study · 8 of 8 runs"


def test_without_a_terminal_there_is_a_plain_line_for_every_tenth(clock, capsys):
    meter = Meter("study", names(40), 0, 1)
    with shown(meter):
        for run in names(40):
            clock[0] += 1.0
            meter.finished(run)
    *lines, last = capsys.readouterr().err.splitlines()
    assert len(lines) == 9
    assert lines[4] == "study · 20 of 40 runs · pace, seed 20 · 20 s left"
    assert last == "40 runs in 40 s"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_one_line_is_drawn_and_removed(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    meter = Meter("[b]study", names(1), 0, 1)
    with shown(meter):
        meter.finished("pace, seed 0")
    drawn = terminal.getvalue()
    assert "[b]study · 1 of 1 runs" in drawn, "markup in names is text"
    assert "\x1b[2K" in drawn, "the line is erased"
    assert drawn.endswith("1 run in 1 s\n")


def test_in_a_notebook_without_widgets_there_are_plain_lines(monkeypatch, capsys):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    meter = Meter("study", names(2), 0, 1)
    with shown(meter):
        for run in names(2):
            meter.finished(run)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_nothing_is_shown_unless_a_run_is_missing_and_it_is_wanted(tmp_path, capsys):
    for settings in ({}, {"progress": True}):
        run_scenario(parse(), tmp_path, jobs=1, **settings)
        assert capsys.readouterr() == ("", "")
    run_scenario(parse(), tmp_path, jobs=1, seeds=3, progress=True)
    assert "2 runs in " in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError), shown(Meter("study", names(1), 0, 1)):
        1 / 0  # noqa: B018
    assert capsys.readouterr().err == "", "after an error there is no last line"
