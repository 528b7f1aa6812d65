"""From a log to a recommendation: what is compared, what is preferred, resuming, a warm start."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from bsfl import Pace, Scheduler
from bsfl.cli.app import app
from bsfl.errors import InvalidInput
from bsfl.simulation import SimulatedClients
from bsfl.simulation.latency import Flaky, lognormal
from bsfl.studies.advice import Advice, read_log, search
from bsfl.studies.advice.search import Search, can_evaluate, first_settings, read_trials
from bsfl.studies.advice.show import floor_section, floor_words, saving, trials_table
from bsfl.studies.advice.trials import (
    Counting,
    ResampledFleets,
    Setting,
    Trial,
    recommended,
    run_setting,
)
from bsfl.studies.advice.warm_start import warm_start
from bsfl.studies.study import Effort

K, M = 24, 3


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    """A log of six responses each; the last client never responds within 60 s."""
    rng = np.random.default_rng(0)
    medians = np.exp(rng.normal(2.0, 0.8, K))
    lines = ["client,latency_s,outcome,loss"]
    for _ in range(6):
        for k in range(K):
            took = min(medians[k] * np.exp(0.1 * rng.normal()), 59.0)
            lines.append(f"<i>c{k},{took:.3f},ok,0.5" if k < K - 1 else f"<i>c{k},60,timeout,")
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def trial(name, seconds, share, **more):
    seconds = np.array(seconds, dtype=float)
    numbers = {"for_as_many_s": seconds, "mean_round_s": seconds, "fair_count": np.array([1e9])}
    same = {k: np.full(len(seconds), v) for k, v in (("min_participation", share), ("gini", 0.1))}
    setting = Setting(policy=name, cohort_size=2, deadline_s=9.0)
    return Trial(setting, 10, numbers | same | {k: np.array([v]) for k, v in more.items()})


def test_the_fastest_that_keeps_the_floor_is_recommended():
    trials = [
        trial("a", [5.0, 5.1], 0.5),
        trial("b", [7.0, 7.1], 0.85),
        trial("c", [9.0, 9.1], 0.9),
    ]
    assert recommended(trials, 0.4) is trials[0]
    assert recommended(trials, 0.8) is trials[1]
    assert recommended(trials, 0.99) is trials[2], "none does: the fairest"


def test_of_two_that_noise_cannot_tell_apart_the_fairer_is_recommended():
    quick = trial("a", [10.0, 12.0, 11.0], 0.80)
    # by seed 2 % slower, 3 % faster, 2 % slower: 1 is inside the interval
    alike = trial("b", [10.2, 11.64, 11.22], 0.95)
    # by seed 5.0, 5.2 and 5.4 % slower: a difference, though seeds differ by more
    slower = trial("c", [10.5, 12.624, 11.594], 0.99)
    assert recommended([quick, alike, slower], 0.5) is alike
    assert recommended([quick, slower], 0.5) is quick
    one_seed = [trial("a", [10.0], 0.8), trial("b", [11.5], 0.9)]
    assert recommended(one_seed, 0.5) is one_seed[0], "15 % count without an interval"


def test_shares_are_counted_in_whole_rounds():
    few = trial("a", [1.0, 1.0], 0.75)
    few.numbers["fair_count"][:] = 8.0  # of 8 rounds a client gets 6 or 7
    assert few.keeps(0.8)
    assert not few.keeps(0.9)


def test_every_policy_that_a_log_can_evaluate_is_tried_and_no_other():
    plan = Setting(policy="random", cohort_size=5, deadline_s=60.0)
    tried = {one.policy for one in first_settings(plan, 100, 0.8)}
    assert tried == {one for one in search.POLICIES if can_evaluate(one)}
    assert {"pace", "bsfl", "random", "cs-ucb", "rbcs-f", "age"} <= tried
    assert not {"genie", "oort", "weighted"} & tried


def test_code_can_be_pasted():
    plan = Setting(policy="random", cohort_size=5, deadline_s=60.0, over_selection="auto")
    for one in first_settings(plan, 100, 0.8):
        names = {}
        exec(one.code(), names)
        assert repr(names["scheduler"].policy) == repr(one.made())
        assert (names["scheduler"].cohort_size, names["scheduler"].over_selection) == (5, "auto")


def fleet_of(seconds, lost=0.0, deadline_s=10.0):
    seconds = np.array(seconds, dtype=float)
    latency = Flaky(lognormal(seconds, np.zeros(len(seconds))), np.broadcast_to(lost, len(seconds)))
    return SimulatedClients(latency=latency, tau_min=0.1, tau_max=deadline_s)


def test_who_does_not_answer_had_its_chance_and_who_is_cut_did_not():
    fleet = fleet_of([1.0, 2.0, 8.0, 1.0], lost=[0.0, 0.0, 0.0, 1.0])
    everyone = Setting(policy="random", cohort_size=4, deadline_s=10.0)
    found = run_setting(fleet, everyone, 20)
    # the last is busy until its invitation expires, after twice the deadline: it then has no participation deficit
    assert found["min_participation"] == pytest.approx(1.0)
    assert found["mean_round_s"] > 8.0
    cut = Setting(policy="random", cohort_size=4, deadline_s=5.0)
    assert run_setting(fleet, cut, 20)["min_participation"] == 0.0, (
        "8 s is within the log's deadline"
    )


def test_time_is_counted_for_as_many_responses():
    setting = Setting(policy="random", cohort_size=2, deadline_s=5.0)
    found = run_setting(fleet_of([1.0, 8.0]), setting, 10)
    # every other round has both: one response in 5 s; the others have the first alone: 1 s
    assert found["responses"] == 1.0
    assert found["for_as_many_s"] == pytest.approx(2 * found["mean_round_s"])


def test_watching_changes_nothing():
    fleet = fleet_of(np.arange(1.0, 10.0))
    setting = Setting(policy="pace", cohort_size=2, deadline_s=10.0)
    policy, watched = setting.made(), Counting(setting.made(), fleet)
    from bsfl.simulation import simulate

    plain, seen = (
        [r.cohort for r in simulate(one, fleet, cohort_size=2, rounds=30)]
        for one in (policy, watched)
    )
    assert plain == seen
    assert watched.n_kept == 60


def searching(folder, log, **more):
    steps = Effort().steps
    fleets = ResampledFleets.of(log)
    return Search(
        fleets=fleets, digest=log.digest(), file=folder / "t.jsonl", jobs=1, steps=steps, **more
    )


def test_finished_runs_are_not_repeated(log_file, tmp_path, monkeypatch):
    log = read_log(log_file)
    setting = Setting(policy="random", cohort_size=M, deadline_s=60.0)
    first = searching(tmp_path, log).trials("", [setting], rounds=5, n_seeds=2)
    monkeypatch.setattr(search, "run_one", lambda *_: pytest.fail("repeated"))
    file = tmp_path / "t.jsonl"
    with file.open("ab") as lines:
        lines.write(b'{"key": "torn')
    again = searching(tmp_path, log).trials("", [setting], rounds=5, n_seeds=2)
    assert again[0].time_s.tolist() == first[0].time_s.tolist()
    for other in (read_log(log_file, deadline_s=50.0), log):
        found = searching(tmp_path, other, options={} if other is not log else {"random": {"x": 1}})
        with pytest.raises(BaseException, match="repeated"):
            found.trials("", [setting], rounds=5, n_seeds=1)


def test_a_damaged_line_is_ignored(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"key": "a", "numbers": {"x": 1}}\nnot json\n{"key": "b"}\n[]\n')
    assert read_trials(file) == {"a": {"x": 1.0}}


def test_a_warm_start_knows_what_the_log_knows(log_file, tmp_path):
    log = read_log(log_file)
    warm_start(log, Pace(tau_max=60.0), cohort_size=M, over_selection=1.3).save(tmp_path / "s.bsfl")
    scheduler = Scheduler.load(tmp_path / "s.bsfl")
    rows = {row["client"]: row for row in scheduler.table()}
    assert len(rows) == K
    for k in range(K - 1):
        own = log.latency_s[log.client == k]
        assert rows[f"<i>c{k}"]["latency_s"] == pytest.approx(np.exp(np.log(own).mean()), rel=1e-3)
        assert rows[f"<i>c{k}"]["participations"] == 6
        assert rows[f"<i>c{k}"]["participation_ratio"] == pytest.approx(1.0), (
            "no client has a deficit"
        )
    assert rows[f"<i>c{K - 1}"]["timeouts"] == 6
    cohort = scheduler.select(available=log.clients)
    assert len(cohort) == 4
    slowest = max(rows.values(), key=lambda row: row["latency_s"] or 0.0)["client"]
    assert slowest not in cohort, "it starts with the fast ones"


@pytest.fixture(scope="module")
def advised(log_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("advice")
    size = {"cohort_size": M, "rounds": 40, "policies": ("pace", "bsfl", "random")}
    report = Advice(log=log_file, min_participation=0.5, **size).play(
        folder, Effort(jobs=1, seeds=2)
    )
    report.write(folder)
    return folder, report


@pytest.mark.slow
def test_what_is_written(advised):
    folder, report = advised
    found = json.loads((folder / "summary.json").read_text())
    best = found["recommended"]
    assert found["n_clients"] == K
    assert best["saved"]["mean"] > 0.0
    assert len(found["recommended_by_floor"]) == 101
    assert found["trials"][found["recommended_by_floor"][50]]["setting"] == best["setting"]
    scheduler = Scheduler.load(folder / "warm-start.bsfl")
    assert scheduler.cohort_size == M
    assert len(scheduler.select()) >= M
    assert best["paste"] == report.code
    text = " ".join(report.headline)
    assert "1 of 24 clients never responded within 60 s" in text
    assert f"saves {100 * best['saved']['mean']:.0f} % (" in report.headline[0]
    page = (folder / "report.html").read_text()
    assert "<i>" not in page
    assert 'id="floor"' in page


@pytest.mark.slow
def test_a_warm_start_that_was_used_is_kept(advised, log_file):
    folder, _ = advised
    scheduler = Scheduler.load(folder / "warm-start.bsfl")
    cohort = scheduler.select()
    scheduler.observe(dict.fromkeys(cohort, 3.0))
    scheduler.save(folder / "warm-start.bsfl")
    before = (folder / "warm-start.bsfl").read_bytes()
    size = {"cohort_size": M, "rounds": 40, "policies": ("pace", "bsfl", "random")}
    again = Advice(log=log_file, min_participation=0.5, **size).play(
        folder, Effort(jobs=1, seeds=2)
    )
    assert (folder / "warm-start.bsfl").read_bytes() == before
    assert "was not overwritten" in again.headline[-1]


@pytest.mark.slow
def test_the_page_has_the_best_for_every_floor(advised):
    _, report = advised
    html = report.sections[0].html
    content = json.loads(html.partition('id="advice">')[2].partition("</script>")[0])
    assert content["by_floor"] == report.numbers["recommended_by_floor"]
    shares = [content["trials"][i]["keeps"] for i in content["by_floor"]]
    highest = max(one["keeps"] for one in content["trials"])
    assert all(keeps >= min(floor, highest) for floor, keeps in enumerate(shares))
    assert floor_section.__doc__


INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from bsfl.cli import main; main()"
)
"""The program, also where tests run in the background of a shell, which ignores Ctrl-C."""


@pytest.mark.slow
def test_ctrl_c_keeps_finished_work_and_the_same_command_resumes(log_file, tmp_path):
    command = [sys.executable, "-c", INTERRUPTIBLE, "advise", str(log_file), "--cohort-size", "3"]
    command += ["--rounds", "400", "--seeds", "2", "--jobs", "2", "--policy", "pace"]
    command += ["--policy", "random", "--out", str(tmp_path / "out")]
    played = tmp_path / "out" / "trials.jsonl"
    new_group = {"start_new_session": True, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    run = subprocess.Popen(command, text=True, **new_group)
    until = time.monotonic() + 300
    while time.monotonic() < until and not (played.exists() and len(read_trials(played)) >= 3):
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 130, errors
    assert "finished work is kept. To resume: bsfl advise" in errors
    assert "Traceback" not in errors
    before = read_trials(played)
    assert len(before) >= 3
    done = subprocess.run([*command[:-2], "--out", str(tmp_path / "out")], capture_output=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line)["key"] for line in played.read_text().splitlines()]
    assert len(lines) == len(set(lines)), "no run was repeated"
    assert lines[: len(before)] == list(before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-participation", "1.5"], "min_participation must be between 0 and 1, got 1.5"),
        (["--deadline", "-3"], "deadline must be"),
        (["--deadline", "0.001"], "no client responded within 0.001 s"),
        (["--cohort-size", "24"], "cohort_size must be below the 24 clients of the log, got 24"),
        (["--ids", "hex"], "ids must be one of auto, text, int, got 'hex'"),
        (["--ids", "int"], "ids must be whole numbers"),
        (["--policy", "oort"], "oort cannot be evaluated on a log of latencies"),
        (["--policy", "pase"], "unknown policy 'pase'; did you mean 'pace'?"),
        (["--client-column", "x"], "there is no column 'x'"),
        (["--latency-column", "outcome"], "line 2: latency must be a number"),
        (
            ["--client-column", "client", "--outcome-column", "client"],
            "line 2: the outcome must be ok",
        ),
        (["--client-column", "client", "--time-column", "client"], "line 2: the time must be"),
        (["--client-column", "client", "--loss-column", "client"], "line 2: loss must be a number"),
    ],
)
def test_a_wrong_option_is_one_clear_line(log_file, tmp_path, options, message):
    done = CliRunner().invoke(
        app, ["advise", str(log_file), "--out", str(tmp_path / "o"), *options]
    )
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert done.output.count("\n") == 1
    assert not (tmp_path / "o").exists(), "nothing was written"


def test_the_old_name_still_works(log_file, tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr("bsfl.cli.studies._conduct", lambda *a, **k: asked.update(a=a, k=k))
    command = ["tune", "--latencies", str(log_file), "--cohort-size", "3", "--deadline", "50"]
    done = CliRunner().invoke(app, [*command, "--rounds", "60", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    study, settings, out, _ = asked["a"]
    assert (study, settings["log"], settings["cohort_size"]) == ("advise", log_file, 3)
    assert (settings["deadline_s"], settings["rounds"], out) == (50.0, 60, tmp_path)
    assert "tune" not in CliRunner().invoke(app, ["--help"]).output.split("Commands")[1]


def test_a_log_of_one_client_leaves_no_choice(tmp_path):
    (tmp_path / "log.csv").write_text("client,latency_s\na,1\n")
    with pytest.raises(
        InvalidInput, match=r"log\.csv has one client, so there is nothing to choose"
    ):
        Advice(log=tmp_path / "log.csv").play(tmp_path, Effort(jobs=1))


def test_two_clients_leave_a_choice_of_one(tmp_path):
    (tmp_path / "log.csv").write_text("client,latency_s\na,1\nb,2\n")
    log = read_log(tmp_path / "log.csv")
    assert Advice(log=tmp_path / "log.csv").first_plan(log).cohort_size == 1
    with pytest.raises(InvalidInput, match="below the 2 clients .* got 5 from the journal"):
        Advice(log=tmp_path / "log.csv").first_plan(replace(log, cohort_size=5))


def test_large_cohorts_can_be_advised_with_every_policy(tmp_path):
    rng = np.random.default_rng(2)
    seconds = np.exp(rng.normal(2.0, 0.6, (4, 130)))
    rows = [f"c{k},{min(x, 60.0):.4g}" for of_round in seconds for k, x in enumerate(of_round)]
    (tmp_path / "log.csv").write_text("client,latency_s\n" + "\n".join(rows) + "\n")
    advice = Advice(log=tmp_path / "log.csv", cohort_size=39, rounds=8)
    found = advice.play(tmp_path / "out", Effort(jobs=1, seeds=1)).numbers
    assert found["recommended"]["setting"]["cohort_size"] == 39
    plan = Setting(policy="random", cohort_size=39, deadline_s=60.0)
    clients = ResampledFleets.of(read_log(tmp_path / "log.csv")).fleet(0)
    for name in (one for one in search.POLICIES if can_evaluate(one)):
        for over_selection in search.OVER_SELECTIONS:
            setting = replace(plan, policy=name, over_selection=over_selection)
            assert run_setting(clients, setting, 3)["invited"] >= 1.0, name


def test_a_file_is_no_folder_for_advice(log_file):
    done = CliRunner().invoke(app, ["advise", str(log_file), "--out", str(log_file)])
    assert done.exit_code == 2
    assert done.output.replace("\n", "").endswith("log.csv is a file; a folder is needed")


def test_what_was_read_is_said_first_and_on_the_page(log_file, tmp_path):
    said = []

    def stop(title, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Advice(log=log_file).play(tmp_path, Effort(jobs=1, say=said.append, steps=stop))
    read = (
        "144 rows of 24 clients: 138 responses within 60 s, 6 timeouts or late responses, 0 failures; client "
        "from 'client', latency from 'latency_s' in s, outcome from 'outcome', loss from 'loss'"
    )
    assert said == [f"{log_file}: {read}"]
    trials = [trial("random", [5.0, 5.1], 0.5, responses=2.0)]
    assert trials_table(trials, trials[0], read).note == f"*: recommended. The log: {read}"


def test_a_ratio_that_is_accepted_for_the_floor_is_explained():
    coarse = trial("random", [5.0], 0.7, fair_count=8.0)
    assert coarse.keeps(0.8), "0.8 - 1/8 = 0.675"
    (words,) = floor_words(coarse, 0.8)
    assert words.startswith("A minimum participation of 70 % is accepted for a floor of 80 %: ")
    assert "in 10 rounds is 8.0, and one round is 12 % of it." in words
    assert floor_words(coarse, 0.7) == []
    assert "No setting keeps every client at 90 %" in floor_words(coarse, 0.9)[0]


def test_more_time_is_explained_by_a_higher_participation():
    plain, best = trial("random", [5.0, 5.0], 0.3), trial("random", [6.0, 6.0], 0.82)
    slow = trial("random", [9.0, 9.0], 0.66)
    first, second = saving(best, slow, plain)
    assert "in return" not in first
    assert second == (
        "It takes 20 % (20 to 20 %) more time than random selection with the same invitations and "
        "deadline; in return, the minimum participation is 82 % instead of 30 %."
    )
    assert "in return" not in saving(slow, best, best)[0], "slower and less fair"
