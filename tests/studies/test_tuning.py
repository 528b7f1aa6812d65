"""From a log to a recommended setting."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from bsfl.analysis.statistics import interval
from bsfl.cli.app import app
from bsfl.errors import InvalidInput
from bsfl.studies.tuning import Trial, read_log, recommended, try_settings


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    rng = np.random.default_rng(0)
    lines = ["client,latency_s"]
    for client in range(30):
        median = np.exp(rng.normal(2.0, 0.8))
        lines += [f"c{client},{median * np.exp(0.1 * rng.normal()):.3f}" for _ in range(6)]
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def trial(index, alpha, round_s, least):
    settings = {"alpha": alpha} if index != "random" else {}
    return Trial(index, settings, interval([round_s]), interval([0.0]), 0.1, least)


def test_the_quickest_that_keeps_the_floor_is_recommended():
    trials = [
        trial("random", 0, 1.0, 1.0),
        trial("a", 1, 5.0, 0.5),
        trial("a", 2, 7.0, 0.85),
        trial("b", 3, 8.0, 0.95),
    ]
    assert recommended(trials, 0.8).settings == {"alpha": 2}
    assert recommended(trials, 0.4).settings == {"alpha": 1}
    assert recommended(trials, 0.99).settings == {"alpha": 3}, "none does: the fairest"


@pytest.mark.slow
def test_trials_are_real(log_file):
    log = read_log(log_file)
    assert len(log.latencies) == 30
    assert log.tau_max == max(seen.max() for seen in log.latencies)
    trials = try_settings(log, cohort_size=3, rounds=120, seeds=2, jobs=1)
    assert trials[0].index == "random"
    assert trials[0].saved.mean == 0.0
    tail = [t for t in trials if t.index == "tail"]
    rounds = [t.mean_round_s.mean for t in tail]
    assert rounds[0] < rounds[-1] < trials[0].mean_round_s.mean, "alpha buys fairness with time"
    assert tail[0].least_share < tail[-1].least_share
    assert tail[-1].saved.mean == pytest.approx(
        1 - tail[-1].mean_round_s.mean / trials[0].mean_round_s.mean, abs=0.02
    )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", ["1", "2"])
def test_the_command_writes_figure_and_numbers(log_file, tmp_path, seeds):
    command = ["tune", "--latencies", str(log_file), "--cohort-size", "3", "--rounds", "60"]
    done = CliRunner().invoke(
        app, [*command, "--seeds", seeds, "--jobs", "1", "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "summary.json").read_text())
    alpha = content["recommended"]["settings"]["alpha"]
    assert f"recommended: BSFL(alpha={alpha!r}" in done.output
    assert f"tau_max={content['recommended']['settings']['tau_max']!r})" in done.output
    assert "nan" not in done.output, "one seed has no interval"
    assert (tmp_path / "tune.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("client,compute_ms_per_sample,bandwidth_kbps\na,1,2\n", "must be client,latency_s"),
        ("client,latency_s\n", "there is no client"),
        ("client,latency_s\na,fast\n", "line 2: latency_s must be a number"),
        ("client,latency_s\na,1e300\n", "line 2: latency_s must be a number"),
        ("client,latency_s\n ,1\n", "line 2: the client has no name"),
        (f"client,latency_s\n{'a' * 140_000},1\n", "line 2: more than 100,000 characters"),
    ],
)
def test_wrong_logs(tmp_path, content, message):
    path = tmp_path / "log.csv"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=message):
        read_log(path)


def test_a_cohort_as_large_as_the_fleet_leaves_no_choice(log_file):
    with pytest.raises(InvalidInput, match="below the 30 clients"):
        try_settings(read_log(log_file), cohort_size=30, rounds=5)
