"""Today's numbers are the golden ones, bit for bit."""

import gzip

import pytest

from . import store

SLOW = ("simulation/regret-iid",)


def _cases():
    for part in store.PARTS:
        for case in store.read(part):
            name = f"{part}/{case}"
            marks = [pytest.mark.slow] if name.startswith(SLOW) else []
            yield pytest.param(part, case, id=name, marks=marks)


@pytest.mark.parametrize(("part", "case"), list(_cases()))
def test_a_case_is_as_it_was(part, case):
    if part == "flower":
        pytest.importorskip("flwr", reason="the plug-in needs the extra flower")
    assert store.difference(golden(part)[case], store.compute(part, case)) is None


@pytest.mark.parametrize("part", store.PARTS)
def test_every_case_has_a_golden_result(part):
    if part == "flower":
        pytest.importorskip("flwr", reason="the plug-in needs the extra flower")
    assert set(store.part(part).CASES) == set(golden(part))


def test_the_first_difference_is_named():
    old = {"rounds": [[1, 2], [3, 0.1]], "n": 1}
    assert store.difference(old, {"rounds": [[1, 2], [3, 0.1]], "n": 1}) is None
    found = store.difference(old, {"rounds": [[1, 2], [3, 0.1 + 2**-55]], "n": 1})
    assert found == "round 2: golden [3, 0.1], now [3, 0.10000000000000003]"
    assert store.difference(old, {"rounds": [[1, 2]], "n": 1}).startswith("number of rounds")
    assert store.difference(old, {**old, "n": 2}) == "n: golden 1, now 2"
    nested = {"rounds": [{"a": 1, "b": 2}]}
    assert store.difference(nested, {"rounds": [{"a": 1, "b": 3}]}).endswith("b: golden 2, now 3")


def test_equal_results_give_equal_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FIXTURES", tmp_path)
    results = {"case": {"rounds": [[1, 0.1]]}}
    written = set()
    for _ in range(2):
        store.write("scheduling", results)
        written.add(store.path_of("scheduling").read_bytes())
    assert len(written) == 1
    assert store.read("scheduling") == results
    assert gzip.decompress(written.pop()).endswith(b"\n")


_GOLDENS = {}


def golden(part):
    """Return the fixture of a part, read once."""
    if part not in _GOLDENS:
        _GOLDENS[part] = store.read(part)
    return _GOLDENS[part]
