"""Tables of a scenario: mistakes with their place, and objects that are described."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import pytest

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.experiments.parts import UNKNOWN, Given, Part, at, checked, references, rule


class Inner(Part):
    share: Annotated[float, rule(validation.between, 0.0, 1.0)]
    kind: Literal["one", "two"] = "one"


class Outer(Part):
    n: Annotated[int, rule(validation.natural)]
    inner: Inner | None = None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"n": 1, "inner": {"share": "x"}}, "f [inner]: share must be between 0 and 1, got 'x'"),
        ({"n": 1, "inner": {}}, "f [inner]: missing key 'share'"),
        ({"n": 1, "inner": {"shar": 1}}, "f [inner]: unknown key 'shar'; did you mean 'share'?"),
        ({"n": 1, "inner": 3}, "f [inner]: expected a table, got 3"),
        ({"n": 1, "inner": {"share": 1, "kind": 3}}, "f [inner]: kind must be 'one' or 'two'"),
        ({"n": 0, "inner": 3}, "f: n must be a whole number of at least 1, got 0"),
        ({"n": True}, "f: n must be a whole number of at least 1, got True"),
        ({"innner": 1}, "f: unknown key 'innner'; did you mean 'inner'?"),
        ({}, "f: missing key 'n'"),
        ([], "f: expected a table, got []"),
    ],
)
def test_the_first_mistake_is_named_with_its_place(table, message):
    with pytest.raises(InvalidInput) as caught:
        checked(Outer, table, place="f")
    assert str(caught.value).startswith(message)


def test_a_change_is_checked_and_none_removes_a_key():
    table = checked(Outer, {"n": 1, "inner": {"share": 0.5}})
    assert table.changed(n=2, inner=None) == checked(Outer, {"n": 2})
    assert table.changed(n=2).plain() == {"n": 2, "inner": {"share": 0.5}}
    with pytest.raises(InvalidInput, match="n must be a whole number"):
        table.changed(n=-1)


def test_a_mistake_of_other_code_keeps_its_type_and_gains_a_note():
    with pytest.raises(KeyError) as caught, at("f [inner]"):
        raise KeyError(3)
    assert caught.value.__notes__ == ["in f [inner]"]


@dataclass
class Shown:
    rate: float = 1.0


@dataclass
class Hidden:
    array: np.ndarray = field(default_factory=lambda: np.zeros(5_000))


def make(seed):
    return seed


def test_objects_are_described_by_what_python_shows():
    assert Given.of(Shown(2.0)).plain() == {"object": "Shown", "settings": "Shown(rate=2.0)"}
    assert Given.of(Shown).plain() == {"object": "Shown"}
    assert Given.of(make).plain() == {"object": "make"}
    local = make(3)
    for opaque in (object(), Hidden(), lambda: 3, lambda: local):
        assert Given.of(opaque).settings == UNKNOWN
    opened = checked(Given, Given.of(Shown()).plain())
    with pytest.raises(InvalidInput, match="Shown was given to bsfl.compare as an object"):
        opened.get()


def test_references_are_found_wherever_they_stand():
    table = {"a": "mine.py:Rule", "b": [{"c": ("x", "d/e.py:f")}], "g": "mine.py"}
    assert list(references(table)) == ["mine.py:Rule", "d/e.py:f"]
