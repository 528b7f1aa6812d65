"""Settings of policies that hold one number for each client, by dense index."""

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.types import MAX_FEATURE


def freeze_arrays(policy: object, *names: str, optional: bool = True) -> None:
    """Turn settings with a finite number above 0 for each client into read-only arrays."""
    for name in names:
        if getattr(policy, name) is not None or not optional:
            numbers = validation.numbers(name, getattr(policy, name))
            validation.all_above_0(name, numbers, MAX_FEATURE)
            numbers.flags.writeable = False
            object.__setattr__(policy, name, numbers)  # policies are frozen


def check_covers(policy: object, n_clients: int, *names: str) -> None:
    """Check that settings by dense index hold a number for every client."""
    for name in names:
        known = getattr(policy, name)
        if known is not None and n_clients > len(known):
            raise InvalidInput(f"{name} must cover all {n_clients} clients, got {len(known)}")
