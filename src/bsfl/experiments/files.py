"""Scenario files, those that come with bsfl, and the files that they name."""

import hashlib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from bsfl._core.registry import absolute_reference, is_reference, nearest
from bsfl.errors import InvalidInput
from bsfl.experiments.parse import parse_scenario
from bsfl.experiments.scenario import Scenario
from bsfl.experiments.toml_file import read_toml
from bsfl.experiments.toml_tables import at
from bsfl.learning.datasets.own import is_own
from bsfl.policies import POLICIES

PATHS = ("path", "dataset")
"""Keys whose values may be files."""


def shipped_scenarios() -> dict[str, Path]:
    """Return the scenario files that come with bsfl, by name."""
    installed = Path(str(resources.files("bsfl"))) / "scenarios"
    source = Path(__file__).parents[3] / "scenarios"
    folder = installed if installed.is_dir() else source
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find_scenario(file_or_name: str) -> Scenario:
    """Return the scenario in a file, or the shipped one of that name."""
    return read_scenario(scenario_path(file_or_name))


def scenario_path(file_or_name: str) -> Path:
    """Return the file that holds a scenario."""
    shipped = shipped_scenarios()
    if file_or_name in shipped:
        return shipped[file_or_name]
    path = Path(file_or_name)
    if path.suffix != ".toml" and not os.path.exists(path):
        raise InvalidInput(f"unknown scenario {file_or_name!r}{nearest(file_or_name, shipped)}")
    if os.path.isdir(path):
        raise InvalidInput(f"{file_or_name} is a folder; name a scenario file, such as my.toml")
    if not os.path.isfile(path):
        raise InvalidInput(f"there is no scenario file {file_or_name}")
    return path


def read_scenario(path: str | Path) -> Scenario:
    """Return the scenario in a TOML file, after checking all of it.

    Files that it names are relative to its own folder.
    """
    path = Path(path)
    with at(path.name):
        content = read_toml(path)
    return parse_scenario(_anchored(content, path.parent), name=path.stem, file=path.name)


def _anchored(value: Any, folder: Path, key: str = "") -> Any:
    """Return a value of a file in which names of other files mean the same in every folder."""
    if isinstance(value, dict):
        return {name: _anchored(one, folder, name) for name, one in value.items()}
    if not isinstance(value, str) or not value:
        return value
    if key == "path" or (key == "dataset" and _is_file(value, folder)):
        return str((folder / value).resolve())
    return absolute_reference(value, folder)


def _is_file(dataset: str, folder: Path) -> bool:
    return not is_reference(dataset) and (is_own(dataset) or os.path.isdir(folder / dataset))


def own_files(value: Any, key: str = "") -> Iterator[Path]:
    """Yield the custom files that the content of a scenario names."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from own_files(one, name)
    elif is_reference(value):
        yield Path(value.rpartition(":")[0])
    elif isinstance(value, str) and key in PATHS:
        path = Path(value)
        yield from sorted(path.glob("*.csv")) if os.path.isdir(path) else [path]


def digests(source: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of every custom file that a scenario depends on."""
    found = dict.fromkeys(path for path in own_files(source) if os.path.isfile(path))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def of_length(
    scenario: Scenario, *, rounds: int | None = None, time_s: float | None = None
) -> dict[str, Any]:
    """Return the content of a scenario with another length: rounds, virtual seconds, or both.

    Regret is measured over a fixed number of rounds; with another time it is left out.
    """
    source = dict(scenario.source)
    if rounds is not None or time_s is not None:
        source |= {"rounds": rounds, "time_s": time_s}
    if time_s is not None:
        source.pop("objective", None)
    return {key: value for key, value in source.items() if value is not None}


def with_more_policies(
    scenario: Scenario,
    policies: Iterable[str],
    settings: Iterable[str] = (),
    *,
    rounds: int | None = None,
    time_s: float | None = None,
) -> Scenario:
    """Return a scenario with further policies, and with some settings changed.

    Args:
        scenario: The scenario.
        policies: Registry names, or "mine.py:Class".
        settings: "key=value" of the one further policy, or "label.key=value" of any.
        rounds, time_s: Another length; None of both: as the scenario says.
    """
    tables = {label: dict(table) for label, table in scenario.source["policies"].items()}
    added = []
    for name in policies:
        if not is_reference(name):
            POLICIES.find(name)
        added.append(name.rpartition(":")[2] if is_reference(name) else name)
        tables[added[-1]] = {"policy": absolute_reference(name, Path.cwd())}
    for setting in settings:
        label, key, value = _setting(setting, tables, added)
        tables[label][key] = value
    source = {**of_length(scenario, rounds=rounds, time_s=time_s), "policies": tables}
    return parse_scenario(source, name=scenario.name, file=scenario.name)


def _setting(text: str, known: Iterable[str], added: list[str]) -> tuple[str, str, Any]:
    """Return label, key and value of "key=value" or "label.key=value"; values are as in TOML."""
    name, equals, value = text.partition("=")
    label, dot, key = name.strip().rpartition(".")
    if not equals or not key:
        raise InvalidInput(f"a setting must be key=value or policy.key=value, got {text!r}")
    if not dot:
        if len(added) != 1:
            raise InvalidInput(
                f"say whose setting it is, as in LABEL.{text}, where LABEL is one of "
                f"{', '.join(added or known)}"
            )
        label = added[0]
    if label not in known:
        raise InvalidInput(f"no policy is called {label!r}{nearest(label, known)}")
    try:
        return label, key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return label, key, value.strip()
