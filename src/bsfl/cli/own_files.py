"""Policies and settings from the command line, and the files that a run executes."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsfl._core.registry import absolute_reference, is_reference, nearest
from bsfl.cli.terminal import errors, say
from bsfl.errors import InvalidInput
from bsfl.policies import POLICIES

if TYPE_CHECKING:
    from bsfl.experiments.scenario import Scenario


def with_more_policies(
    scenario: "Scenario",
    policies: Iterable[str],
    settings: Iterable[str],
    *,
    rounds: int | None,
    time_s: float | None,
) -> "Scenario":
    """Return a scenario with further policies, some settings changed, and another length.

    Args:
        scenario: The scenario.
        policies: Registry names, or "mine.py:Class".
        settings: "key=value" of the one further policy, or "label.key=value" of any.
        rounds, time_s: Another length; None of both: as the scenario says.
    """
    tables = {label: table.plain() for label, table in scenario.policies.items()}
    added = []
    for name in policies:
        if not is_reference(name):
            POLICIES.find(name)
        elif name.endswith(":"):
            raise InvalidInput(f"policy {name!r} names no class; write mine.py:Name")
        added.append(name.rpartition(":")[2] if is_reference(name) else name)
        tables[added[-1]] = {"policy": absolute_reference(name, Path.cwd())}
    for setting in settings:
        label, key, value = _setting(setting, tables, added)
        tables[label][key] = value
    return scenario.changed(policies=tables, **scenario.of_length(rounds, time_s))


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


def check_trust(files: Iterable[Path], *, is_trusted: bool) -> None:
    """Print which files a run executes; those from elsewhere must be trusted."""
    for file in files:
        if not is_trusted and not file.resolve().is_relative_to(Path.cwd()):
            raise InvalidInput(
                f"{file} would be executed and is not below the current folder; if you trust it, "
                "use bsfl run or bsfl policies with --trust"
            )
        say(f"executes {file}", errors)
