"""Which policy a file was saved with, and whether another one can read its state."""

import os
from typing import Any

import numpy as np

from bsfl import validation
from bsfl._core.registry import KIND, Registry, components_of, is_reference
from bsfl.errors import InvalidInput, StateFileError
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.policy import PolicyWrapper


def described_policy(policy: Policy) -> dict[str, Any]:
    """Return name and settings as plain data; no settings when a component is custom.

    `state_keys`, the settings that give the numbers in a state their meaning, are always included,
    so that a state is never loaded under others.
    """
    settings = POLICIES.plain(policy)
    return {"policy": _name(policy), "settings": settings, "state_keys": _state_keys(policy)}


def _state_keys(thing: object) -> dict[str, Any]:
    components: dict[str, Registry[Any]] = components_of(type(thing))
    found: dict[str, Any] = {}
    names = getattr(thing, "state_keys", ())
    if isinstance(thing, PolicyWrapper):  # the state is that of the wrapped policy
        wrapped = thing.policy
        found |= {"policy": _name(wrapped), "state_keys": _state_keys(wrapped)}
        names = [name for name in names if name not in wrapped.state_keys]
    for name in names:
        value = getattr(thing, name)
        if name in components:
            kind = components[name].name_of(value) or type(value).__qualname__
            value = {KIND: kind, **_state_keys(value)}
        found[name] = value.tolist() if isinstance(value, np.generic) else value
    return found


def policy_of(
    header: dict[str, Any], path: str | os.PathLike[str], given: Policy | None
) -> tuple[Policy, bool]:
    """Return the policy to go on with, the saved or the given one, and whether it reads the state.

    A given policy reads the state if it is of the saved kind with equal `state_keys`.
    """
    name, settings = header["policy"], header["settings"]
    if given is not None:
        return given, _name(given) == name and _state_keys(given) == header["state_keys"]
    if settings is None:
        shown = validation.short(name).strip("'")
        raise StateFileError(
            f"{path} was saved with a custom policy or custom functions ({shown}); "
            "call Scheduler.load(path, policy=...) with the same; nothing was loaded"
        )
    is_known = isinstance(name, str) and name in POLICIES and not is_reference(name)
    if not is_known:  # a named file is not executed
        shown = validation.short(name)
        raise StateFileError(f"{path} holds an unknown policy {shown}; nothing was loaded")
    _refuse_references(settings, path)
    try:
        return make_policy(name, **settings), True
    except InvalidInput as error:
        raise StateFileError(f"{path}: {validation.in_short(error)}; nothing was loaded") from None


def _refuse_references(settings: Any, path: str | os.PathLike[str]) -> None:
    """Refuse settings that name functions in a file: a state file must not execute code."""
    if isinstance(settings, dict | list):
        for value in settings.values() if isinstance(settings, dict) else settings:
            _refuse_references(value, path)
    elif is_reference(settings):
        raise StateFileError(
            f"{path} was saved with a function in a custom file ({validation.short(settings)}), "
            "which is not executed without your consent; call "
            "Scheduler.load(path, policy=...) with the same; nothing was loaded"
        )


def _name(policy: Policy) -> str:
    return POLICIES.name_of(policy) or type(policy).__qualname__
