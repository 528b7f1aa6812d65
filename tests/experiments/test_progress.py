"""What is said of runs while they are played: which one, how much, and how long the rest takes."""

import io
from types import SimpleNamespace

import pytest

from bsfl.experiments import progress
from bsfl.experiments.progress import Cell, Lines, Live, Meter, watch


class Grid:
    """Runs as they would be on disk, played by workers on a clock of their own."""

    def __init__(self, costs, seeds, *, begin_s=0.0, workers=2, first_seed=0):
        self.scenario = SimpleNamespace(name="study", first_seed=first_seed)
        self.costs, self.seeds, self.now_s = costs, seeds, 0.0
        self.begins, free = {}, [0.0] * workers
        for label, index in self.runs():
            free.sort()
            self.begins[label, index] = free[0], free[0] + begin_s
            free[0] += begin_s + costs[label]
        self.end_s = max(free)

        self.workers = workers

    def clock(self):
        return self.now_s

    def runs(self):
        return [(label, index) for index in range(self.seeds) for label in self.costs]

    def run_file(self, label, index):
        opened_s, plays_s = self.begins[label, index]
        done = min(1.0, max(0.0, (self.now_s - plays_s) / self.costs[label]))
        path = SimpleNamespace(exists=lambda: self.now_s >= opened_s)
        return SimpleNamespace(progress=lambda: done, path=path)


def followed(grid, until_s, step_s=0.3):
    meter = Meter([grid], clock=grid.clock, workers=grid.workers)
    while grid.now_s + step_s < until_s:
        grid.now_s += step_s
        meter.look()
    return meter


@pytest.mark.parametrize(
    "grid",
    [
        Grid({"a": 20.0, "b": 20.0, "c": 20.0}, 8),
        Grid({"cheap": 2.0, "dear": 40.0, "c": 10.0}, 8),
        Grid({"a": 20.0, "b": 30.0, "c": 5.0, "d": 10.0}, 6, begin_s=8.0),
        Grid({"a": 0.05, "b": 0.08}, 300),
        Grid({"a": 100.0}, 2, begin_s=5.0, workers=4),
        Grid({"a": 60.0, "b": 90.0, "c": 45.0}, 1, begin_s=20.0),
    ],
    ids=["alike", "unlike", "slow to begin", "tiny", "more workers than runs", "one seed"],
)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
def test_the_time_left_is_right_within_a_factor_of_two_after_a_tenth(grid, share):
    grid.now_s = 0.0
    meter = followed(grid, grid.end_s * share)
    work = sum(grid.run_file(*run).progress() * grid.costs[run[0]] for run in grid.runs())
    if work < 0.1 * sum(grid.costs[label] for label, _ in grid.runs()):
        meter = followed(grid, grid.end_s * 0.4)  # it was slow to begin
    true_s = grid.end_s - grid.now_s
    assert true_s / 2 <= meter.left_s() <= 2 * true_s, f"{meter.left_s()} s for {true_s} s"


def test_a_line_says_what_is_played_how_much_is_done_and_how_long_the_rest_takes():
    grid = Grid({"pace": 10.0, "random": 10.0}, 8, workers=1, first_seed=2)
    meter = followed(grid, 25.2, step_s=1.0)
    assert meter.text() == " 16% · pace · seed 3 (2 of 8) · 2 min 15 s left"
    assert "study · pace" not in meter.text()
    grid = Grid({"pace": 10.0, "random": 10.0}, 8, workers=2)
    assert "pace · seed 1 (2 of 8) and 1 more" in followed(grid, 15.2, step_s=1.0).text()


def test_what_was_there_before_tells_nothing_of_the_pace():
    grid = Grid({"a": 10.0}, 10, workers=1)
    grid.now_s = 50.0
    meter = Meter([grid], clock=grid.clock)
    assert (meter.done, meter.left_s()) == (5.0, None)
    for _ in range(20):
        grid.now_s += 0.5
        meter.look()
    assert meter.left_s() == pytest.approx(40.0)


def test_without_a_terminal_there_is_a_plain_line_for_every_tenth():
    grid, stream = Grid({"a": 10.0}, 10, workers=1), io.StringIO()
    meter, lines = Meter([grid], clock=grid.clock), Lines(stream)
    while grid.now_s < grid.end_s:
        grid.now_s += 0.5
        meter.look()
        lines.show(meter)
    said = stream.getvalue().splitlines()
    assert len(said) == 9
    assert said[4] == "50% · a · seed 5 (6 of 10) · 50 s left"
    assert not any("\r" in line for line in said)


def test_on_a_terminal_one_line_is_written_over_itself(monkeypatch):
    grid, stream = Grid({"a": 10.0, "b": 10.0}, 2, workers=1), io.StringIO()
    monkeypatch.setenv("COLUMNS", "40")
    meter, live = followed(grid, 15.0, step_s=1.0), Live(stream)
    live.show(meter)
    live.end("4 runs in 40 s")
    first, second = stream.getvalue().split("\r")[1:]
    assert first == meter.text()[:39], "cut to the width of the terminal"
    assert second == f"{'4 runs in 40 s':<{len(first)}}\n"


def test_in_a_notebook_one_output_is_replaced():
    shown = []

    class Output:
        def update(self, data, *, raw):
            assert raw
            shown[-1] = data["text/plain"]

    def display(data, *, raw, display_id):
        assert (raw, display_id) == (True, True)
        shown.append(data["text/plain"])
        return Output()

    grid = Grid({"a": 10.0, "b": 10.0}, 2, workers=1)
    cell, meter = Cell(display), followed(grid, 15.0, step_s=1.0)
    cell.show(meter)
    assert shown == [meter.text().strip()]
    cell.end("4 runs in 40 s")
    assert shown == ["4 runs in 40 s"]


def test_nothing_is_said_where_nothing_is_missing(capsys):
    grid = Grid({"a": 1.0}, 1)
    grid.now_s = 5.0
    with watch([grid]):
        pass
    assert capsys.readouterr() == ("", "")


def test_at_the_end_it_says_how_many_runs_there_were(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PAUSE_S", 0.01)
    with watch([Grid({"a": 1.0, "b": 1.0}, 2)]):
        pass
    assert capsys.readouterr().err == "4 runs in 1 s\n"
    with pytest.raises(ZeroDivisionError), watch([Grid({"a": 1.0}, 1)]):
        1 / 0  # noqa: B018
    assert capsys.readouterr().err == ""
