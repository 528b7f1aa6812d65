"""Which policy a file was saved with, and which one may go on from it."""

import os
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput, StateFileError
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.registry import KIND, Registry, is_reference, parts_of


def described(policy: Policy) -> dict[str, Any]:
    """Return name and settings as plain data; no settings when a part is the user's own.

    What a policy remembers by, the settings that give the numbers in its state their meaning, is
    always there: a class says which these are with `REMEMBERS_BY`, and so does a part.
    """
    settings = POLICIES.plain(policy)
    return {"policy": _name(policy), "settings": settings, "remembers": _remembers(policy)}


def _remembers(thing: object) -> dict[str, Any]:
    parts: dict[str, Registry[Any]] = parts_of(type(thing))
    found: dict[str, Any] = {}
    for name in getattr(thing, "REMEMBERS_BY", ()):
        value = getattr(thing, name)
        if name in parts:
            kind = parts[name].name_of(value) or type(value).__qualname__
            value = {KIND: kind, **_remembers(value)}
        found[name] = value.tolist() if isinstance(value, np.generic) else value
    return found


def policy_of(header: dict[str, Any], path: str | os.PathLike[str], given: Policy | None) -> Policy:
    """Return the policy to go on with: the saved one, or the given one if it can read the state."""
    name, settings = header["policy"], header["settings"]
    if given is not None and _name(given) != name:
        raise StateFileError(
            f"{path} holds what policy {checks.short(name)} learned, got policy {_name(given)!r}; "
            "nothing was loaded"
        )
    if given is None and settings is None:
        shown = checks.short(name).strip("'")
        raise StateFileError(
            f"{path} was saved with a policy or functions of your own ({shown}); "
            "call Scheduler.load(path, policy=...) with the same; nothing was loaded"
        )
    if given is None:
        if name not in list(POLICIES):  # a file that is named there is not run
            shown = checks.short(name)
            raise StateFileError(f"{path} holds an unknown policy {shown}; nothing was loaded")
        _refuse_references(settings, path)
        try:
            return make_policy(name, **settings)
        except InvalidInput as error:
            raise StateFileError(f"{path}: {checks.in_short(error)}; nothing was loaded") from None
    remembered = _remembers(given)
    for setting, was in header.get("remembers", {}).items():
        now = remembered.get(setting)
        if was != now:
            raise StateFileError(
                f"{path} was saved with {setting}={was!r}, and what it remembers cannot be read "
                f"with {setting}={now!r}; nothing was loaded"
            )
    return given


def _refuse_references(settings: Any, path: str | os.PathLike[str]) -> None:
    """Refuse settings that name functions in a file: whoever writes a state file runs no code."""
    if isinstance(settings, dict | list):
        for value in settings.values() if isinstance(settings, dict) else settings:
            _refuse_references(value, path)
    elif is_reference(settings):
        raise StateFileError(
            f"{path} was saved with a function in a file of your own ({checks.short(settings)}), "
            "which is not run unasked; call Scheduler.load(path, policy=...) with the same; "
            "nothing was loaded"
        )


def _name(policy: Policy) -> str:
    return POLICIES.name_of(policy) or type(policy).__qualname__
