"""What the engine asks of policies: that they are some, and that their selections are valid."""

from dataclasses import fields, is_dataclass, replace

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.policy import Policy, PolicyWrapper, Selection
from bsfl.types import IntArray
from bsfl.validation import short


def check_policy(policy: object) -> None:
    """Check that something is a policy; a class or a name is not one yet."""
    if isinstance(policy, type):
        raise InvalidInput(
            f"policy must be an object, got the class {policy.__name__}; "
            f"did you mean {policy.__name__}()?"
        )
    if isinstance(policy, str):
        raise InvalidInput(
            f"policy must be an object such as Pace(), got {short(policy)}; "
            "bsfl.policies.make_policy makes one by its name"
        )
    if not isinstance(policy, Policy):
        raise InvalidInput(
            f"policy must be an object of a subclass of bsfl.Policy, got {short(policy)}"
        )


def check_forgettable(policy: object) -> None:
    """Check that no setting of a policy names clients by dense index, so that they may move."""
    while isinstance(policy, PolicyWrapper):
        policy = policy.policy
    settings = fields(policy) if is_dataclass(policy) and not isinstance(policy, type) else ()
    indexed = [one.name for one in settings if isinstance(getattr(policy, one.name), np.ndarray)]
    if indexed:
        raise InvalidInput(
            f"{type(policy).__name__} knows clients by their position ({', '.join(indexed)}), so "
            "none can be forgotten"
        )


def reindexed_selection(
    known: tuple[Selection, IntArray] | None, place: IntArray
) -> tuple[Selection, IntArray] | None:
    """Return a selection with client k as place[k].

    None if a client that was available has no place any more: it was another selection then.
    """
    if known is None or np.any(place[known[1]] < 0):
        return None
    selection, available = known
    moved = {
        name: place[getattr(selection, name)] for name in ("clients", "reserved", "candidates")
    }
    return replace(selection, **moved), place[available]
