"""Scenario files: found by name or path and read safely; nothing that they name is executed."""

import hashlib
import os
import tomllib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from bsfl._core.registry import absolute_reference, is_reference, nearest
from bsfl.errors import InvalidInput, reason
from bsfl.experiments.parts import at, keys_and_values, references
from bsfl.experiments.scenario import Scenario, parse_scenario
from bsfl.learning.datasets.own import is_own
from bsfl.persistence.regular_file import open_regular

MAX_FILE_BYTES = 1_000_000
"""Size of a scenario file."""
MAX_DEPTH = 20
"""Tables and lists within each other."""
TOO_DEEP = f"more than {MAX_DEPTH} levels of nesting"


def shipped_scenarios() -> dict[str, Path]:
    """Return the scenario files that come with bsfl, by name."""
    installed = Path(str(resources.files("bsfl"))) / "scenarios"
    source = Path(__file__).parents[3] / "scenarios"
    folder = installed if installed.is_dir() else source
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def scenario_path(file_or_name: str | Path) -> Path:
    """Return the file that holds a scenario."""
    shipped, name = shipped_scenarios(), str(file_or_name)
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if path.suffix != ".toml" and not os.path.exists(path):
        raise InvalidInput(f"unknown scenario {name!r}{nearest(name, shipped)}")
    if os.path.isdir(path):
        raise InvalidInput(f"{name} is a folder; name a scenario file, such as my.toml")
    if not os.path.isfile(path):
        raise InvalidInput(f"there is no scenario file {name}")
    return path


def read_scenario(file_or_name: str | Path) -> Scenario:
    """Return the scenario in a TOML file, or the shipped one of that name, after checking it.

    Files that it names are relative to its own folder. Those with code are not executed.

    >>> read_scenario("phones").cohort_size
    10
    """
    path = scenario_path(file_or_name)
    with at(path.name):
        content = _anchored(read_toml(path), path.parent)
    return parse_scenario(content, name=path.stem, file=path.name)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file after checking its values, or say why there is none."""
    try:
        with open_regular(path, max_bytes=MAX_FILE_BYTES) as file:
            content = tomllib.loads(file.read().decode())
    except OSError as error:
        raise InvalidInput(f"cannot be read: {reason(error)}") from None
    except RecursionError:
        raise InvalidInput(TOO_DEEP) from None
    except ValueError as error:  # of TOML, UTF-8, or a number of more digits than Python reads
        raise InvalidInput(f"not a TOML file: {error}") from None
    check_values(content)
    return content


def check_values(value: object, key: str = "", depth: int = MAX_DEPTH) -> None:
    """Check what holds for every value: numbers of 64 bits, no NUL, no endless nesting."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidInput(f"{key} must be a whole number of 64 bits, got a larger one")
    if isinstance(value, str) and "\0" in value:  # no file and no module has such a name
        raise InvalidInput(f"{key} must not hold the character NUL")
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for name, one in inside:
        if depth == 0:
            raise InvalidInput(TOO_DEEP)
        word = name if isinstance(name, str) and name.isprintable() else repr(name)
        check_values(one, f"{key}.{word}" if key else word, depth - 1)


def _anchored(value: Any, folder: Path, key: str = "") -> Any:
    """Return a value of a file in which names of other files mean the same in every folder."""
    if isinstance(value, dict):
        return {name: _anchored(one, folder, name) for name, one in value.items()}
    if not isinstance(value, str) or not value or key == "title":
        return value
    is_file = key == "path" or (
        key == "dataset"
        and not is_reference(value)
        and (is_own(value) or os.path.isdir(folder / value))
    )
    return str((folder / value).resolve()) if is_file else absolute_reference(value, folder)


def executed_files(scenario: Scenario) -> list[Path]:
    """Return the files of the user's own that a run of the scenario executes."""
    named = references({key: one for key, one in scenario.plain().items() if key != "title"})
    return list(dict.fromkeys(Path(one.rpartition(":")[0]) for one in named))


def digests(scenario: Scenario) -> dict[str, str]:
    """Return the SHA-256 of every file that a scenario depends on, by its path."""
    files, found = executed_files(scenario), {}
    for key, value in keys_and_values(scenario.plain()):
        if key in ("path", "dataset") and isinstance(value, str):
            path = Path(value)
            files += sorted(path.glob("*.csv")) if os.path.isdir(path) else [path]
    for path in files:
        if os.path.isfile(path):
            with open_regular(path) as file:
                found[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
