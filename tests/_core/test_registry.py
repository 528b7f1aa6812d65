"""Names, settings, plain data, entry points and custom files."""

import re
import sys
from importlib.metadata import EntryPoint

import pytest

import bsfl._core.registry
from bsfl import BSFL, Discounted, Lognormal, MinParticipation, Scheduler, UCBIndex
from bsfl._core.registry import REQUIRED, Registry, absolute_reference
from bsfl.errors import InvalidInput, StateFileError
from bsfl.persistence import statefile
from bsfl.policies import POLICIES, UniformRandom, make_policy

MINE = """
from dataclasses import dataclass
from bsfl import UniformRandom

print("run")

@dataclass(frozen=True, kw_only=True)
class Mine(UniformRandom):
    patience: int = 3
"""


def test_a_name_is_found_and_an_unknown_name_suggests_the_nearest():
    colours = Registry("colour", {"red": 1, "blue": 2})
    assert list(colours) == ["red", "blue"]
    assert colours.find("red") == 1
    for wrong, why in (
        ("blu", "'blu'; did you mean 'blue'"),
        ("x", "'x'; known are red, blue"),
        (3, "3"),
    ):
        with pytest.raises(InvalidInput, match=f"unknown colour {why}"):
            colours.find(wrong)


def test_settings_of_classes_and_of_functions():
    def draw(n_clients, rng, *, mean, sd=2.0):
        return n_clients

    drawn = Registry("population", {"normal": draw}, given=("n_clients", "rng"))
    assert drawn.settings("normal") == {"mean": REQUIRED, "sd": 2.0}
    assert drawn.call("normal", 5, None, mean=1.0) == 5
    with pytest.raises(InvalidInput, match="population 'normal' has no setting 'men'; did you"):
        drawn.call("normal", 5, None, men=1.0)
    message = r"must take n_clients, rng, and settings after that, got \(n_clients\)"
    with pytest.raises(InvalidInput, match=message):
        drawn.call(lambda n_clients: 3, 5, None)
    assert POLICIES.settings("cs-ucb") == {"tau_max": REQUIRED, "exploration": 1.0}


def test_a_text_is_no_number():
    def rule(patience: int = 0, share: "float" = 0.5, over_selection: int | str = 1) -> str:
        return f"{patience} {share} {over_selection}"

    rules = Registry("rule", {"mine": rule})
    assert rules.call("mine", patience=3, share=1, over_selection="auto") == "3 1 auto"
    for name in ("patience", "share"):
        with pytest.raises(InvalidInput, match=f"^{name} must be a number, got 'half'$"):
            rules.call("mine", **{name: "half"})


def test_components_come_from_tables_and_go_back():
    settings = {
        "alpha": {"kind": "min-participation", "share": 0.8},
        "index": {"kind": "lognormal", "quantile": 0.8, "optimism": 0.5},
        "memory": {"kind": "discounted", "gamma": 0.9},
    }
    policy = make_policy("bsfl", **settings)
    assert policy == BSFL(
        alpha=MinParticipation(0.8), index=Lognormal(quantile=0.8), memory=Discounted(0.9)
    )
    assert POLICIES.plain(policy).items() >= settings.items()
    assert make_policy("bsfl", index="lognormal").index == Lognormal(), "a name alone will do"


def test_what_is_custom_cannot_be_written_down():
    def wide(count, *, t, m, variance):
        return 2.0 / count

    class Mine(UniformRandom):
        pass

    assert POLICIES.plain(BSFL(index=UCBIndex(confidence_width=wide))) is None
    assert POLICIES.plain(Mine()) is None
    assert POLICIES.name_of(Mine()) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"index": {"kind": "lognorml"}}, "unknown index 'lognorml'; did you mean 'lognormal'"),
        ({"index": {"quantile": 0.9}}, "index needs a kind, one of ucb, lognormal"),
        ({"index": {"kind": "lognormal", "width": 1}}, "index 'lognormal' has no setting 'width'"),
        ({"memory": {"kind": "discounted"}}, "memory 'discounted' needs a value for gamma"),
        ({"alpha": {"kind": "min-participation", "share": 2}}, "share must be between 0 and 1"),
        ({"alfa": 1.0}, "policy 'bsfl' has no setting 'alfa'; did you mean 'alpha'"),
    ],
)
def test_wrong_tables_say_what_is_wrong(settings, message):
    with pytest.raises(InvalidInput, match=message):
        make_policy("bsfl", **settings)


def test_a_policy_in_a_file_is_run_once_and_is_the_same_class(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    name = absolute_reference("mine.py:Mine", tmp_path)
    assert name == f"{path}:Mine"
    assert absolute_reference("bsfl", tmp_path) == "bsfl"
    policy = make_policy(name, patience=5)
    assert policy.patience == 5
    assert type(policy) is POLICIES[name]
    assert capsys.readouterr().out == "run\n"
    with pytest.raises(InvalidInput, match="has no setting 'patence'; did you mean 'patience'"):
        make_policy(name, patence=5)
    with pytest.raises(InvalidInput, match="has no 'Mime'; did you mean 'Mine'"):
        make_policy(f"{path}:Mime")
    with pytest.raises(InvalidInput, match="there is no file"):
        make_policy(f"{tmp_path}/other.py:Mine")


def test_a_file_that_fails_says_why_and_can_be_fixed(tmp_path):
    path = tmp_path / "broken.py"
    (tmp_path / "broken_neighbour.py").write_text("\n\nx = = 1\n")
    for content, message in (
        ("\ndef f():\n    1 / 0\nf()", "broken.py, line 3: ZeroDivisionError: division by zero"),
        ("\nclass Mine\n", "broken.py, line 2: SyntaxError: expected ':'"),
        ("import nowhere_at_all", "broken.py, line 1: ModuleNotFoundError: No module named 'nowh"),
        ("import broken_neighbour", "broken_neighbour.py, line 3: SyntaxError: invalid syntax"),
        ("\0", "broken.py: "),
    ):
        path.write_text(content)
        with pytest.raises(InvalidInput, match=f"^{re.escape(str(tmp_path / message))}") as raised:
            POLICIES.find(f"{path}:Mine")
        assert raised.value.__cause__ is None
    path.write_text(MINE)
    assert POLICIES.find(f"{path}:Mine").__name__ == "Mine"


def test_a_file_may_import_its_neighbour_and_hides_nothing(tmp_path):
    before = [*sys.path]
    (tmp_path / "neighbour_of_mine.py").write_text("from bsfl import AgeBased as Base")
    (tmp_path / "json.py").write_text("raise SystemExit('hidden')")
    path = tmp_path / "own.py"
    path.write_text("import json\nfrom neighbour_of_mine import Base\nclass Mine(Base): pass\n")
    assert POLICIES.find(f"{path}:Mine").__mro__[1].__name__ == "AgeBased"
    assert sys.path == before
    with pytest.raises(InvalidInput, match="own.py has no 'Zzz'; known are Mine$"):
        POLICIES.find(f"{path}:Zzz")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("State", "policy '.*own.py:State' must be a subclass of bsfl.Policy$"),
        ("json", "policy '.*own.py:json' must be a class or a function, got <module 'json'"),
        ("THREE", "policy '.*own.py:THREE' must be a class or a function, got 3$"),
    ],
)
def test_what_is_no_policy_in_a_custom_file_is_named(tmp_path, name, message):
    path = tmp_path / "own.py"
    path.write_text("import json\nTHREE = 3\nclass State:\n    value: int = 0\n")
    for use in (POLICIES.find, POLICIES.settings, make_policy):
        with pytest.raises(InvalidInput, match=message):
            use(f"{path}:{name}")


def test_entry_points_of_other_packages_are_listed_and_loaded(monkeypatch):
    point = EntryPoint("theirs", "bsfl.policies.uniform_random:UniformRandom", "bsfl.policies")
    clash = EntryPoint("bsfl", "nowhere:Evil", "bsfl.policies")
    monkeypatch.setattr(bsfl._core.registry, "entry_points", lambda group: [point, clash])
    known = Registry("policy", {"bsfl": BSFL}, group="bsfl.policies")
    assert list(known) == ["bsfl", "theirs"]
    assert known["bsfl"] is BSFL, "what comes with bsfl keeps its name"
    assert known.make("theirs") == UniformRandom()
    assert known.name_of(UniformRandom()) == "theirs"


def test_no_file_is_run_because_a_state_file_names_it(tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    Scheduler(BSFL(), cohort_size=1).save(tmp_path / "s")
    header, arrays = statefile.read(tmp_path / "s")
    header["policy"] = f"{tmp_path}/evil.py:Evil"
    statefile.write(tmp_path / "s", header, arrays)
    with pytest.raises(StateFileError, match="holds an unknown policy"):
        Scheduler.load(tmp_path / "s")
