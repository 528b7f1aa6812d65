"""Which policy a file was saved with, and which one may go on from it."""

import os
from dataclasses import fields
from typing import Any

import numpy as np

from bsfl.errors import InvalidInput, StateFileError
from bsfl.policies.base import Policy
from bsfl.policies.registry import make_policy, name_of


def described(policy: Policy) -> dict[str, Any]:
    """Return name and settings as JSON can hold them; no settings when a part is the user's own.

    What a policy remembers by, the settings that give the numbers in its state their meaning, is
    always told: a class says which these are with `REMEMBERS_BY`.
    """
    known = name_of(policy)
    remembers = {name: getattr(policy, name) for name in getattr(policy, "REMEMBERS_BY", ())}
    settings = {f.name: getattr(policy, f.name) for f in fields(policy)} if known else {}  # type: ignore[arg-type]
    if not known or any(callable(value) for value in settings.values()):
        return {"policy": _name(policy), "settings": None, "remembers": remembers}
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in settings.items()
    }
    return {"policy": known, "settings": plain, "remembers": remembers}


def policy_of(header: dict[str, Any], path: str | os.PathLike[str], given: Policy | None) -> Policy:
    """Return the policy to go on with: the saved one, or the given one if it can read the state."""
    name, settings = header["policy"], header["settings"]
    if given is not None and _name(given) != name:
        raise StateFileError(
            f"{path} holds what policy {name!r} learned, got policy {_name(given)!r}; "
            "nothing was loaded"
        )
    if given is None and settings is None:
        raise StateFileError(
            f"{path} was saved with a policy or functions of your own ({name}); "
            "call Scheduler.load(path, policy=...) with the same; nothing was loaded"
        )
    if given is None:
        try:
            return make_policy(name, **settings)
        except InvalidInput as error:
            raise StateFileError(f"{path}: {error}; nothing was loaded") from None
    for setting, was in header.get("remembers", {}).items():
        now = getattr(given, setting)
        if was != now:
            raise StateFileError(
                f"{path} was saved with {setting}={was!r}, and what it remembers cannot be read "
                f"with {setting}={now!r}; nothing was loaded"
            )
    return given


def _name(policy: Policy) -> str:
    return name_of(policy) or type(policy).__qualname__
