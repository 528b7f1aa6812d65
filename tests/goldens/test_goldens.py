"""Today's numbers are the golden ones, bit for bit."""

import pytest

from . import store

SLOW = ("simulation/regret-iid",)
GOLDENS = {part: store.read(part) for part in store.PARTS}


def _cases():
    for part in store.PARTS:
        for case in GOLDENS[part]:
            name = f"{part}/{case}"
            marks = [pytest.mark.slow] if name.startswith(SLOW) else []
            yield pytest.param(part, case, id=name, marks=marks)


def skip_without_flower(part):
    if part == "flower":
        pytest.importorskip("flwr", reason="the plug-in needs the extra flower")


@pytest.mark.parametrize(("part", "case"), list(_cases()))
def test_a_case_is_as_it_was(part, case):
    skip_without_flower(part)
    assert store.difference(GOLDENS[part][case], store.compute(part, case)) is None


@pytest.mark.parametrize("part", store.PARTS)
def test_every_case_has_a_golden_result(part):
    skip_without_flower(part)
    assert set(store.part(part).CASES) == set(GOLDENS[part])


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({}, None),
        ({"rounds": [[1, 0.1 + 2**-55]]}, "round 1: golden [1, 0.1], now [1, 0.10000000000000003]"),
        ({"rounds": []}, "number of rounds: golden 1, now 0"),
        ({"n": {"a": 1, "b": 3}}, "n: b: golden 2, now 3"),
        ({"m": 1}, "m: golden null, now 1"),
    ],
)
def test_the_first_difference_is_named(now, expected):
    golden = {"rounds": [[1, 0.1]], "n": {"a": 1, "b": 2}}
    assert store.difference(golden, golden | now) == expected


def test_equal_results_give_equal_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FIXTURES", tmp_path)
    written = set()
    for _ in range(2):
        store.write("flower", GOLDENS["flower"])
        written.add(store.path_of("flower").read_bytes())
    assert len(written) == 1
    assert store.read("flower") == GOLDENS["flower"]
