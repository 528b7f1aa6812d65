"""Scenario files are found, read safely, and name other files relative to their own folder."""

import os
import tracemalloc

import pytest

import bsfl
from bsfl.errors import BsflError, InvalidInput
from bsfl.experiments import parse_scenario, read_scenario
from small_scenario import SMALL


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "log.csv").write_text("client,latency_s\na,1.5\nb,2.5\nc,3.0\n")
    text = SMALL.replace('population = "lognormal"', 'population = "trace"\npath = "log.csv"')
    (tmp_path / "own.toml").write_text(text)
    monkeypatch.chdir("/")
    scenario = read_scenario(tmp_path / "own.toml")
    assert scenario.clients.latency.settings["path"] == str(tmp_path / "log.csv")


def test_finding_scenarios(tmp_path):
    with pytest.raises(InvalidInput, match="unknown scenario 'demos'; did you mean 'demo'?"):
        read_scenario("demos")
    with pytest.raises(InvalidInput, match=r"there is no scenario file nowhere\.toml"):
        read_scenario("nowhere.toml")
    (tmp_path / "own.toml").write_text(SMALL)
    assert read_scenario(str(tmp_path / "own.toml")).name == "own"
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(InvalidInput, match=r"bad\.toml: not a TOML file"):
        read_scenario(tmp_path / "bad.toml")


def test_a_policy_of_the_users_own_is_found_beside_the_file(tmp_path):
    (tmp_path / "rules.py").write_text("from bsfl import UniformRandom as Mine\n")
    text = SMALL + '\n[policies.mine]\npolicy = "rules.py:Mine"\n'
    (tmp_path / "study.toml").write_text(text)
    scenario = read_scenario(tmp_path / "study.toml")
    name = f"{tmp_path / 'rules.py'}:Mine"
    assert scenario.policies["mine"].name == name
    assert scenario.plain()["policies"]["mine"] == {"policy": name}, "the manifest says where"


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning": {"dataset": "a" * 500}},
        {"learning": {"dataset": "a" * 500 + ".npz"}},
        {"policies": {"x": {"policy": "a" * 500 + ".py:X"}}},
    ],
)
def test_a_name_that_is_too_long_for_a_file_is_refused(wrong, tmp_path):
    content = read_scenario("demo").plain()
    for table, keys in wrong.items():
        content[table] |= keys
    with pytest.raises(InvalidInput, match="x.toml"):
        parse_scenario(content, name="x", file="x.toml")
    with pytest.raises(InvalidInput, match="there is no scenario file"):
        read_scenario("q" * 500 + ".toml")


def test_a_shipped_scenario_or_a_file_is_read_from_the_top_of_the_package(tmp_path):
    (tmp_path / "own.toml").write_text(SMALL)
    assert bsfl.read_scenario("phones").name == "phones"
    assert bsfl.read_scenario(tmp_path / "own.toml").title == "small"


def test_a_title_is_no_file(tmp_path):
    (tmp_path / "own.toml").write_text(SMALL.replace('"small"', '"see mine.py:Rule"'))
    assert read_scenario(tmp_path / "own.toml").title == "see mine.py:Rule"


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ('[learning]\ndataset = "{}"', r"\[learning\]"),
        ('[clients.availability]\nkind = "recorded"\npath = "{}"', r"\[clients.availability\]"),
        ('[clients.availability]\nkind = "intervals"\npath = "{}"', r"\[clients.availability\]"),
        ('[policies.own]\npolicy = "{}:Rule"', r"\[policies.own\]"),
    ],
)
@pytest.mark.parametrize("device", ["/dev/zero", "pipe"])
def test_no_device_and_no_pipe_is_read(tmp_path, part, place, device):
    os.mkfifo(tmp_path / "pipe")
    name = device if device == "/dev/zero" else str(tmp_path / "pipe")
    if "policy" in part:
        os.symlink(name, tmp_path / "rule.py")
        name = "rule.py"
    (tmp_path / "own.toml").write_text(f"{SMALL}\n{part.format(name)}\n")
    tracemalloc.start()
    with pytest.raises(BsflError, match=place):
        read_scenario(tmp_path / "own.toml")
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


def test_a_scenario_or_a_trace_that_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "own.toml")
    with pytest.raises(InvalidInput, match="there is no scenario file"):
        read_scenario(tmp_path / "own.toml")
    with pytest.raises(InvalidInput, match="there is no scenario file /dev/zero"):
        read_scenario("/dev/zero")
    text = SMALL.replace('population = "lognormal"', 'population = "trace"\npath = "/dev/zero"')
    (tmp_path / "trace.toml").write_text(text)
    with pytest.raises(InvalidInput, match=r"\[clients.latency\]: /dev/zero cannot be read"):
        read_scenario(tmp_path / "trace.toml")
