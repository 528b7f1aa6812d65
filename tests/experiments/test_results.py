"""Results on disk: what is read, what is rejected, and that no damage goes unseen."""

import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from attacks import of_long_form
from bsfl.cli.reports import drawn
from bsfl.errors import InvalidInput, NewerFormat
from bsfl.experiments import Results, open_results, read_manifest, run_scenario
from bsfl.experiments.results import write_checked
from bsfl.experiments.summary import summarise
from bsfl.experiments.tables import summary_table
from bsfl.report import scenario_report
from small_scenario import parse


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run_scenario(parse(), tmp_path_factory.mktemp("finished"), jobs=1)


@pytest.fixture
def folder(finished, tmp_path):
    """A copy that may be changed."""
    return shutil.copytree(finished.folder, tmp_path / "copy")


def test_one_file_for_every_run_and_a_manifest(finished):
    files = {p.relative_to(finished.folder).as_posix() for p in finished.folder.rglob("*.*")}
    runs = {f"runs/{label}/seed-000{i}.run" for label in ("bsfl", "plain") for i in range(2)}
    assert files == {".lock", "manifest.json", *runs}
    again = open_results(finished.folder)
    for run in finished.runs():
        assert again.run(*run).records.tobytes() == finished.run(*run).records.tobytes()
        assert again.run(*run).selection_s == finished.run(*run).selection_s > 0
    assert again.scenario == finished.scenario


def test_another_scenario_is_kept_out(finished):
    message = r"holds results of another 'study' \(it differs in rounds\); choose another folder"
    with pytest.raises(InvalidInput, match=message):
        run_scenario(parse(rounds=31), finished.folder, jobs=1)


def test_title_seeds_and_the_name_of_a_policy_change_no_run(folder):
    other = parse(title="other", seeds=1, policies__random={})
    run_scenario(other, folder, jobs=1)
    assert open_results(folder).seeds == 2
    named = parse(policies__random={"policy": "random"}, seeds=1)
    assert Results(folder, named, 1).missing() == []
    with pytest.raises(InvalidInput, match=r"differs in policies\.random"):
        run_scenario(parse(policies__random={"policy": "age"}), folder, seeds=1, jobs=1)


def test_missing_results_are_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"holds no results \(there is no manifest\.json\)"):
        open_results(tmp_path)
    results = Results(tmp_path, parse(), 1)
    results.write_manifest()
    with pytest.raises(InvalidInput, match=r"is missing: this run is not finished; resume"):
        summarise(results)


def test_a_run_is_not_taken_for_another_one(folder):
    results = open_results(folder)
    for other in (results.path("bsfl", 1), results.path("plain", 0)):
        shutil.copy(other, results.path("bsfl", 0))
        with pytest.raises(InvalidInput, match=r"seed-0000\.run is of another run"):
            open_results(folder).records("bsfl")
    (folder / "manifest.json").unlink()
    assert len(Results(folder, parse(rounds=31), 2).missing()) == 4, "with another scenario"


def test_runs_survive_a_damaged_manifest(finished, folder):
    for damage in ("{", "{}", "[]", "7", '{"sha256": ""}', "[" * 10**5, "\x00"):
        (folder / "manifest.json").write_text(damage)
        for read in (lambda: open_results(folder), lambda: run_scenario(parse(), folder, jobs=1)):
            with pytest.raises(InvalidInput, match=r"manifest\.json is damaged; delete it and run"):
                read()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.run")}
    (folder / "manifest.json").unlink()
    run_scenario(parse(), folder, jobs=1)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.run")} == before
    assert read_manifest(folder) == read_manifest(finished.folder)


def test_results_of_a_later_release(folder):
    write_checked(folder / "manifest.json", read_manifest(folder) | {"format": 2})
    with pytest.raises(NewerFormat, match="upgrade bsfl"):
        open_results(folder)


def report(folder):
    """Return the numbers of a report, without the seconds of selecting, which nothing repeats."""
    numbers = summarise(open_results(folder)).as_json()
    for policy in numbers["policies"].values():
        policy.pop("selection_ms", None)
    return numbers


def files_of(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]


def attack(folder, n_flips):
    """Flip single bits at seeded places, one at a time: each is an error that names its file."""
    rng, files, before = np.random.default_rng(18), files_of(folder), report(folder)
    assert {path.suffix for path in files} == {".json", ".run"}
    sizes = np.array([path.stat().st_size for path in files], dtype=float)
    hit = set()
    for i in range(n_flips):  # every second one in a file by size, the others in any file
        path = files[rng.choice(len(files), p=sizes / sizes.sum() if i % 2 else None)]
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises(InvalidInput, match=f"^{path} is damaged; .*run the s.*$"):
            report(folder)
        path.write_bytes(whole)
        hit.add(path)
    assert hit == set(files)
    assert report(folder) == before


def test_a_flipped_bit_anywhere_is_an_error_that_names_its_file(folder):
    attack(folder, 300)


@pytest.mark.attack
def test_many_flipped_bits_are_errors_that_name_their_file(folder):
    attack(folder, of_long_form(10_000))


def test_the_advice_about_a_damaged_file_helps(folder):
    before = report(folder)
    for path in files_of(folder):
        path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")
        with pytest.raises(InvalidInput, match=r"is damaged; ") as error:
            report(folder)
        if "delete it" in str(error.value):
            path.unlink()
        run_scenario(parse(), folder, jobs=1)
        assert report(folder) == before


def test_runs_of_different_versions_are_named(folder):
    results = open_results(folder)
    assert summarise(results).warnings() == []
    run = results.run("bsfl", 1)
    other = run.versions | {"numpy": "1.0.0"}
    results.write("bsfl", 1, replace(run, versions=other))
    made = scenario_report(open_results(folder))
    warning = "study: runs of different versions may differ by that (numpy 1.0.0, numpy "
    assert made.headline[-1] == f"{warning}{np.__version__})."
    assert made.numbers["warnings"] == [made.headline[-1]]
    assert made.numbers["versions"] == [run.versions, other]


def test_results_are_reported_where_the_trace_of_their_run_is_not(tmp_path, caplog):
    log = tmp_path / "log.csv"
    log.write_text("client,latency_s\n" + "".join(f"{k},{k + 1}\n" for k in range(12)))
    latency = {"population": "trace", "path": str(log)}
    made = run_scenario(parse(clients__latency=latency), tmp_path / "out", seeds=1, jobs=1)
    whole = scenario_report(made)
    log.unlink()
    report = scenario_report(open_results(tmp_path / "out"))
    assert f"{log} cannot be read: No such file or directory; what needs the" in caplog.text
    assert len(caplog.records) == 1
    assert report.headline == whole.headline
    assert {plot.name for plot in whole.plots} - {plot.name for plot in report.plots} == {"learned"}
    with pytest.raises(InvalidInput, match="policy must be one of bsfl, plain, got 'pace'"):
        made.records("pace")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 1},
        {"cohort_size": 1, "rounds": 3},
        {"clients__n_clients": 1, "cohort_size": 1},
        {"clients__latency": {"population": "lognormal", "spread": 0.0}},
        {"clients__availability": {"kind": "independent", "probability": 0.0}},
        {"clients__failures": {"probability": 1.0}},
        {"title": "odd [/foo] [red]title[/red]"},
        {"title": r"$\frac", "rounds": 3},
        {"title": r"$\frac$ $x^$ \$ {}%s <b>&amp;</b> 日本 🦊 \u202e", "rounds": 3},
    ],
)
def test_odd_scenarios_can_be_reported(tmp_path, changes):
    results = run_scenario(parse(**changes), tmp_path, jobs=1)
    report = scenario_report(results)
    report.write(tmp_path)
    json.dumps(report.numbers, allow_nan=False)
    Console(file=io.StringIO()).print(drawn(summary_table(summarise(results), "selection")))
