"""Kinds of availability by name: at random, by the clock or as recorded.

Each function makes the availability of n_clients from rng; the registry at the end gives the names
that scenario files use. "intervals" and "week" go by the virtual clock, the others by the round.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from bsfl import validation
from bsfl._core.registry import Registry
from bsfl.errors import InvalidInput
from bsfl.simulation.availability import (
    MAX_PHONES,
    Always,
    Availability,
    Independent,
    RecordedAvailability,
    phones_availability,
    read_availability,
)
from bsfl.simulation.intervals import WEEK_S, Intervals, read_intervals
from bsfl.simulation.week import phone_week
from bsfl.types import Rng


def always(n_clients: int, rng: Rng) -> Always:
    """Return that all clients are always available."""
    return Always()


def independent(n_clients: int, rng: Rng, *, probability: float) -> Independent:
    """Return that each client is available with a probability, in every round anew."""
    return Independent(probability)


def phones(
    n_clients: int, rng: Rng, *, probability: float, rounds_per_step: int = 1
) -> RecordedAvailability:
    """Return that clients come and go as real phones do, with this mean availability."""
    mean = validation.between("probability", probability, 0.0, MAX_PHONES)
    return phones_availability(n_clients, rng, mean=mean, rounds_per_step=rounds_per_step)


def recorded(
    n_clients: int, rng: Rng, *, path: str, rounds_per_step: int = 1
) -> RecordedAvailability:
    """Return what an .npz or .npy file [time, device] recorded."""
    return read_availability(_file(path), n_clients, rng, rounds_per_step=rounds_per_step)


def intervals(
    n_clients: int,
    rng: Rng,
    *,
    path: str,
    period_s: float = WEEK_S,
    start_hour: float = 0.0,
    ids: Sequence[str] | None = None,
) -> Intervals:
    """Return when a CSV client,start_s,end_s says that clients were online."""
    file = _file(path)
    return read_intervals(file, n_clients, rng, period_s=period_s, start_hour=start_hour, ids=ids)


def week(n_clients: int, rng: Rng, *, start_hour: float = 0.0) -> Intervals:
    """Return that clients come and go as phones do over a week."""
    return phone_week(n_clients, rng, start_hour=start_hour)


def _file(path: object) -> Path:
    if not isinstance(path, str) or not path:
        raise InvalidInput(f"path must be the name of a file, got {path!r}")
    return Path(path)


AVAILABILITIES: Registry[Callable[..., Availability]] = Registry(
    "availability",
    {
        "always": always,
        "independent": independent,
        "phones": phones,
        "recorded": recorded,
        "intervals": intervals,
        "week": week,
    },
    group="bsfl.availabilities",
    given=("n_clients", "rng"),
)
"""Availabilities by name; a custom one is a function (n_clients, rng) that returns one."""
