"""Finished results do not rot in silence: a flipped bit is an error that names its file."""

import json
import shutil

import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.experiments import checksummed, open_results, read_manifest, run_scenario
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


def as_older(folder):
    """Make a folder what an earlier version would have written."""
    for path in folder.rglob("seed-*.json"):
        path.unlink()
    manifest = read_manifest(folder)
    del manifest["format"]
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


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
    assert {path.suffix for path in files} == {".json", ".records", ".seconds"}
    before, hit = report(folder), set()
    for path, said in flips(folder, n_flips):
        assert f"{path} is damaged; " in said
        assert "delete it and run the" in said
        assert len(said.splitlines()) == 1
        hit.add(path)
    assert hit == set(files), "every file was hit"
    assert report(folder) == before


def test_a_flipped_bit_anywhere_is_seen(folder):
    attack(folder, N_FLIPS)


@pytest.mark.attack
def test_many_flipped_bits_are_seen(folder):
    attack(folder, 10_000)


def test_the_advice_helps(finished, folder):
    before = report(folder)
    run_s = {path: path.read_bytes() for path in folder.rglob("*.records")}
    for path in files_of(folder):
        path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")
        with pytest.raises(InvalidInput, match=r"is damaged; .*delete it and run the"):
            report(folder)
        path.unlink()
        run_scenario(parse(), folder, jobs=1)
        after = report(folder)
        for one in (before, after):
            for own in one["policies"].values():
                own.pop("selection_ms", None)  # it takes another time each time
        assert after == before
    assert {path: path.read_bytes() for path in folder.rglob("*.records")} == run_s


def test_a_run_that_was_interrupted_before_its_checksums_is_compared_and_finalised(folder):
    run = open_results(folder).run_file("bsfl", 0)
    run.checksum_path.unlink()
    with pytest.raises(InvalidInput, match="is not finished .100%.; run the scenario again"):
        report(folder)
    run_scenario(parse(), folder, jobs=1)
    report(folder)
    run.checksum_path.unlink()
    run.path.write_bytes(run.path.read_bytes()[:-1] + b"?")
    with pytest.raises(InvalidInput, match="differs from what is computed now"):
        run_scenario(parse(), folder, jobs=1)


def test_a_longer_file_is_not_finalised(folder):
    run = open_results(folder).run_file("bsfl", 0)
    run.checksum_path.unlink()
    run.path.write_bytes(run.path.read_bytes() * 2)
    with pytest.raises(InvalidInput, match="differs from what is computed now"):
        run_scenario(parse(), folder, jobs=1)


def test_folders_of_earlier_versions_are_read_and_finalised_when_they_are_continued(folder):
    before = report(folder)
    as_older(folder)
    assert report(folder) == before
    records = {path: path.read_bytes() for path in folder.rglob("*.records")}
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["versions"]["bsfl"] = "0.1.0rc1"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    run_scenario(parse(), folder, seeds=3, jobs=1)
    now = open_results(folder)
    assert not now.is_older
    assert {path: path.read_bytes() for path in records} == records
    assert now.run_file("bsfl", 0).checksums()["versions"]["bsfl"] == "0.1.0rc1"
    assert now.run_file("bsfl", 2).checksums()["versions"]["bsfl"] != "0.1.0rc1"
    attack(folder, 200)


def test_runs_of_different_versions_are_called_so(folder):
    assert report(folder)["warnings"] == []
    run = open_results(folder).run_file("bsfl", 1)
    versions = run.checksums()["versions"]
    run.finalise(versions | {"numpy": "1.0.0"})
    made = scenario_report(open_results(folder))
    line = (
        "study: runs of different versions may differ by that "
        f"(numpy 1.0.0, numpy {np.__version__})."
    )
    assert made.headline[-1] == line
    assert made.numbers["warnings"] == [line]
    assert made.numbers["versions"] == [versions, versions | {"numpy": "1.0.0"}]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"7", b"[" * 10**5, b"\xff", b'{"format": 2}']
)
def test_a_file_without_valid_checksum_is_damaged(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="a.json is damaged; do this"):
        checksummed.read(path, advice="do this")


def test_a_file_without_a_checksum_is_of_an_earlier_version(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert checksummed.read(path, advice="") == {"format": 1, "a": 1}
    checksummed.write(path, {"a": "\n}"})
    assert checksummed.read(path, advice="") == {"format": 2, "a": "\n}"}
