"""From a log to a recommendation: the changes, their intervals, what is written and resumed."""

import json

import numpy as np
import pytest

from bsfl.advisor import Advice, advise, read_log
from bsfl.advisor.advice import first_plan
from bsfl.advisor.search import Trial
from bsfl.advisor.settings import Setting
from bsfl.errors import InvalidInput

K, M = 24, 3


def trial(time_s, ratio, policy="random", over_selection=1.0, deadline_s=9.0, n_invited=2.0):
    """Return a trial with these seconds by seed."""
    more = {"over_selection": over_selection, "deadline_s": deadline_s}
    numbers = {"time_s": time_s, "min_participation": ratio, "invited": n_invited}
    numbers |= {"fair_count": 1e9, "gini": 0.1, "mean_round_s": time_s, "responses": 2.0}
    arrays = {k: np.broadcast_to(np.array(v, float), len(time_s)) for k, v in numbers.items()}
    return Trial(Setting(policy=policy, cohort_size=2, **more), 10, arrays)


@pytest.fixture
def given(log_file):
    """Return the advice of four steps whose numbers are given."""
    seeds = np.array([8.0, 10.0, 12.0])
    path = [
        trial(seeds, 0.7),
        trial(seeds * [0.50, 0.50, 0.52], [0.0, 0.1, 0.1], over_selection=1.3, n_invited=3.0),
        trial(seeds * [0.45, 0.46, 0.45], 0.1, over_selection=1.3, deadline_s=5.0),
        trial(seeds * [0.60, 0.61, 0.60], 0.9, "pace", over_selection=1.3, deadline_s=5.0),
    ]
    return Advice(log=read_log(log_file), floor=0.8, trials=[path[0], path[3]], path=path)


def test_each_change_says_what_it_does_with_intervals(given):
    first, *changes = given.headline()[:4]
    # on the log scale: ln of 0.60, 0.61, 0.60; times t(2) = 4.30 and the root of 1 + 1/3
    logs = np.log([0.60, 0.61, 0.60])
    half = 4.302653 * logs.std(ddof=1) * np.sqrt(4 / 3)
    low, high = 100 * (1 - np.exp(logs.mean() + half)), 100 * (1 - np.exp(logs.mean() - half))
    assert first == (
        f"The recommendation saves 40 % ({low:.0f} to {high:.0f} %) of the time of random "
        "selection for as many responses. The lowest participation ratio of a client is 0.90 "
        "(0.90 to 0.90)."
    )
    assert changes[0].startswith(
        "1. Invite 3 clients and stop at 2 responses: this saves 49 % (43 to 55 %) of the time. "
        "The lowest participation ratio is 0.07 (0.00 to "
    )
    assert "Close rounds after 5 s instead of 9 s: this takes 0.89 (" in changes[1]
    assert "times the time, a difference that is not significant. The" in changes[1]
    words = "3. Select clients with Pace() instead of UniformRandom(): this takes 33 % ("
    assert changes[2].startswith(words)
    assert " %) more time than before. The lowest participation ratio is 0.90" in changes[2]
    assert "-" not in "".join(changes), "no interval is negative"


def test_the_report_has_the_best_for_every_floor_and_texts_are_texts(given):
    report = given.report()
    floors = [(row[0], row[1], row[5]) for row in report.tables[0].rows]
    assert floors == [("0.90", "Pace()", pytest.approx(0.9))]
    assert report.code.endswith("Scheduler(Pace(tau_max=5.0), cohort_size=2, over_selection=1.3)")
    text = " ".join(report.headline)
    assert "1 of 24 clients never responded within 60 s" in text
    numbers = json.loads(json.dumps(report.numbers))
    assert len(numbers["changes"]) == 3
    assert numbers["changes"][0]["min_participation"]["low"] >= 0.0
    assert "connect-src" not in report.page().partition("</head>")[0], "no request goes anywhere"


@pytest.mark.parametrize(
    ("ratio", "floor", "words"),
    [
        (0.9, 0.8, ""),
        (0.7, 0.8, "A ratio of 0.70 is accepted for a floor of 0.80, because one round is 12 %"),
        (0.5, 0.8, "No setting keeps every client at 80 % of its fair count; this one comes"),
    ],
)
def test_limits_of_a_floor_and_no_change(log_file, ratio, floor, words):
    one = trial([5.0, 5.0], ratio)
    one = Trial(one.setting, 10, {**one.numbers, "fair_count": np.full(2, 8.0)})
    first, *more = Advice(log=read_log(log_file), floor=floor, trials=[one], path=[one]).headline()
    assert first.startswith("Change nothing: no setting that keeps every client at 80 %")
    assert more[0].startswith(words or "1 of 24 clients never")


@pytest.mark.slow
def test_an_advice_is_a_comparison_that_resumes(log_file, tmp_path, monkeypatch):
    log = read_log(log_file)
    more = {"cohort_size": M, "rounds": 60, "policies": ["pace", "bsfl", "random"], "jobs": 1}
    found = advise(log, tmp_path, min_participation=0.5, seeds=2, **more)
    assert found.best.keeps(0.5)
    assert found.best.mean("time_s") < 0.8 * found.trials[0].mean("time_s")
    assert found.path[0] is not found.best
    scheduler = found.scheduler()
    assert (scheduler.cohort_size, len(scheduler.clients)) == (M, K)
    monkeypatch.setattr("bsfl.experiments.runner.run_one", lambda *_: pytest.fail("repeated"))
    again = advise(log, tmp_path, min_participation=0.5, seeds=2, **more)
    assert again.report().numbers == found.report().numbers


def test_the_cohort_size_comes_from_the_log_and_leaves_a_choice(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("client,latency_s\na,1\n")
    with pytest.raises(InvalidInput, match="has one client, so there is nothing to choose"):
        advise(read_log(file), tmp_path)
    file.write_text("client,latency_s\na,1\nb,2\n")
    log = read_log(file)
    assert first_plan(log, None).cohort_size == 1
    with pytest.raises(InvalidInput, match="below the 2 clients of the log, got 2"):
        first_plan(log, 2)
