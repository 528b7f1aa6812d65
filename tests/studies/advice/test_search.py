"""The search over settings: what is tried, and that finished runs are not repeated."""

from dataclasses import replace

import numpy as np
import pytest

from bsfl.studies.advice import Advice, read_log, search
from bsfl.studies.advice.search import Search, can_evaluate, first_settings, read_trials
from bsfl.studies.advice.trials import ResampledFleets, Setting, run_setting
from bsfl.studies.study import Effort


def test_every_policy_that_a_log_can_evaluate_is_tried_and_its_code_can_be_pasted():
    plan = Setting(policy="random", cohort_size=5, deadline_s=60.0, over_selection="auto")
    tried = first_settings(plan, 100, 0.8)
    policies = {one.policy for one in tried}
    assert policies == {one for one in search.POLICIES if can_evaluate(one)}
    assert {"pace", "bsfl", "random", "cs-ucb", "rbcs-f", "age"} <= policies
    assert not {"genie", "oort", "weighted"} & policies
    for one in tried:
        names = {}
        exec(one.code(), names)
        assert repr(names["scheduler"].policy) == repr(one.made())
        assert (names["scheduler"].cohort_size, names["scheduler"].over_selection) == (5, "auto")


def searching(folder, log, **more):
    return Search(
        fleets=ResampledFleets.of(log),
        digest=log.digest(),
        file=folder / "t.jsonl",
        jobs=1,
        steps=Effort().steps,
        **more,
    )


def test_finished_runs_are_not_repeated(log_file, tmp_path, monkeypatch):
    log = read_log(log_file)
    setting = Setting(policy="random", cohort_size=3, deadline_s=60.0)
    first = searching(tmp_path, log).trials("", [setting], rounds=5, n_seeds=2)
    monkeypatch.setattr(search, "run_one", lambda *_: pytest.fail("repeated"))
    with (tmp_path / "t.jsonl").open("ab") as lines:
        lines.write(b'{"key": "torn')
    again = searching(tmp_path, log).trials("", [setting], rounds=5, n_seeds=2)
    assert again[0].time_s.tolist() == first[0].time_s.tolist()
    other_log = searching(tmp_path, read_log(log_file, deadline_s=50.0))
    other_options = searching(tmp_path, log, options={"random": {"x": 1}})
    for other in (other_log, other_options):
        with pytest.raises(BaseException, match="repeated"):
            other.trials("", [setting], rounds=5, n_seeds=1)


def test_a_damaged_line_is_ignored(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"key": "a", "numbers": {"x": 1}}\nnot json\n{"key": "b"}\n[]\n')
    assert read_trials(file) == {"a": {"x": 1.0}}


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
