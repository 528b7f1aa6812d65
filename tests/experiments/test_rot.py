"""Finished results do not rot in silence: a flipped bit is an error that names its file."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from attacks import of_long_form
from bsfl.errors import InvalidInput
from bsfl.experiments import open_results, run_scenario
from bsfl.experiments.summary import summarise
from bsfl.report import scenario_report
from small_scenario import parse

N_FLIPS = 300


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run_scenario(parse(), tmp_path_factory.mktemp("finished"), jobs=1)


@pytest.fixture
def folder(finished, tmp_path):
    """A copy that may be damaged."""
    return shutil.copytree(finished.folder, tmp_path / "copy")


def files_of(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]


def report(folder):
    return summarise(open_results(folder)).as_json()


def flips(folder, n_flips, seed=18):
    """Flip single bits at seeded places, one at a time; yield the file and what is said of it."""
    rng, files = np.random.default_rng(seed), files_of(folder)
    sizes = np.array([path.stat().st_size for path in files], dtype=float)
    for i in range(n_flips):  # every second one in a file by size, the others in any file
        path = files[rng.choice(len(files), p=sizes / sizes.sum() if i % 2 else None)]
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            report(folder)
            said = ""
        except InvalidInput as error:
            said = str(error)
        path.write_bytes(whole)
        yield path, said


def attack(folder, n_flips):
    files = files_of(folder)
    assert {path.suffix for path in files} == {".json", ".run"}
    before, hit = report(folder), set()
    for path, said in flips(folder, n_flips):
        assert f"{path} is damaged; " in said
        assert "run the s" in said, "it says what to do"
        assert len(said.splitlines()) == 1
        hit.add(path)
    assert hit == set(files), "every file was hit"
    assert report(folder) == before


def test_a_flipped_bit_anywhere_is_seen(folder):
    attack(folder, N_FLIPS)


@pytest.mark.attack
def test_many_flipped_bits_are_seen(folder):
    attack(folder, of_long_form(10_000))


def test_the_advice_helps(finished, folder):
    before = report(folder)
    for path in files_of(folder):
        path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")
        with pytest.raises(InvalidInput, match=r"is damaged; ") as error:
            report(folder)
        if "delete it" in str(error.value):
            path.unlink()
        run_scenario(parse(), folder, jobs=1)
        after = report(folder)
        for one in (before, after):
            for own in one["policies"].values():
                own.pop("selection_ms", None)  # it takes another time each time
        assert after == before


def test_runs_of_different_versions_are_called_so(folder):
    assert report(folder)["warnings"] == []
    results = open_results(folder)
    run = results.run("bsfl", 1)
    versions = run.versions
    results.write("bsfl", 1, replace(run, versions=versions | {"numpy": "1.0.0"}))
    made = scenario_report(open_results(folder))
    line = (
        "study: runs of different versions may differ by that "
        f"(numpy 1.0.0, numpy {np.__version__})."
    )
    assert made.headline[-1] == line
    assert made.numbers["warnings"] == [line]
    assert made.numbers["versions"] == [versions, versions | {"numpy": "1.0.0"}]
