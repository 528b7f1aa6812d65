"""Which clients are available: models that go by the round, and all models by name.

"intervals" and "week" go by the virtual clock instead: see bsfl.simulation.intervals.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl._core.registry import Registry
from bsfl.errors import InvalidInput, reason
from bsfl.persistence.regular_file import read_arrays
from bsfl.simulation.client_rows import file_path
from bsfl.simulation.intervals import read_intervals
from bsfl.simulation.week import phone_week
from bsfl.types import BoolArray, Rng

MAX_BYTES = 1 << 30
"""Bytes of a recording, in its file and in memory."""


class Availability(Protocol):
    """The available clients, round by round or hour by hour."""

    def reachable(self, t: int, clock_s: float, n_clients: int, rng: Rng) -> BoolArray:
        """Return whether each client is available at clock_s, when round t starts."""


@dataclass(frozen=True, slots=True)
class Always:
    """All clients, always."""

    def reachable(self, t: int, clock_s: float, n_clients: int, rng: Rng) -> BoolArray:
        return np.ones(n_clients, dtype=bool)


@dataclass(frozen=True, slots=True)
class Independent:
    """Each client with the same probability, independently in every round."""

    probability: float

    def __post_init__(self) -> None:
        validation.between("probability", self.probability, 0.0, 1.0)

    def reachable(self, t: int, clock_s: float, n_clients: int, rng: Rng) -> BoolArray:
        return rng.random(n_clients) < self.probability


@dataclass(frozen=True, slots=True)
class RecordedAvailability:
    """Clients that come and go as recorded devices did; the record starts again when it ends.

    Attributes:
        state: [time, device]: 1 reachable, 0 not, -1 unknown (taken as not).
        device: Which device each client follows.
        rounds_per_step: How many rounds one step of the record lasts.
    """

    state: npt.NDArray[np.int8]
    device: npt.NDArray[np.int64]
    rounds_per_step: int = 1

    def __post_init__(self) -> None:
        validation.natural("rounds_per_step", self.rounds_per_step)

    def reachable(self, t: int, clock_s: float, n_clients: int, rng: Rng) -> BoolArray:
        step = (t - 1) // self.rounds_per_step % len(self.state)
        return np.asarray(self.state[step, self.device] == 1)


def read_availability(
    n_clients: int, rng: Rng, *, path: str | Path, rounds_per_step: int = 1
) -> RecordedAvailability:
    """Return the availability recorded in an .npz (array `state`) or .npy file of [time, device].

    Each client follows a random device, twice the same one only if there are fewer devices.
    """
    state = read_state(file_path(path))
    n_devices = state.shape[1]
    device = rng.choice(n_devices, n_clients, replace=n_clients > n_devices)
    return RecordedAvailability(state, device, rounds_per_step)


def read_state(path: Path) -> npt.NDArray[np.int8]:
    """Return the [time, device] of a recording: 1 reachable, 0 not, -1 unknown."""
    try:
        arrays = read_arrays(path, ["state"], max_bytes=MAX_BYTES)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{path} cannot be read as an .npz or .npy file: {reason(error)}"
        ) from None
    if not arrays:
        raise InvalidInput(f"{path}: there is no array 'state' in the file")
    content = arrays["state"]
    if content.ndim != 2 or content.size == 0 or not np.isin(content, (-1, 0, 1)).all():
        raise InvalidInput(f"{path}: availability must be [time, device] with values 1, 0 and -1")
    return content.astype(np.int8)


# Quantiles of the share of time that 723 phones could be reached over five days in half-hour
# steps (FLASH data); their mean is 0.081. A phone that can be reached stays for another step with
# probability 0.76.
REACHABLE_LEVELS = (0.0, 0.29, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
REACHABLE_SHARE = (0.0, 0.0, 0.016, 0.042, 0.066, 0.1, 0.148, 0.224, 0.293, 0.451, 0.6)
STAYS = 0.76
N_STEPS = 336
"""Steps of a simulated record, a week of half hours, before it starts again."""
MAX_PHONES = 0.12
"""Largest mean availability to which the phones' shares can be scaled."""


def phones_availability(
    n_clients: int, rng: Rng, *, probability: float, rounds_per_step: int = 1
) -> RecordedAvailability:
    """Return clients that come and go as phones do: some never, some often, for a while each time.

    Client k is reachable a share p_k of the time, with p_k from the quantiles of real phones,
    scaled to a mean of `probability`. It is a Markov chain: a client that is there stays with
    probability 0.76, another comes with probability 0.24 p_k / (1 - p_k).
    """
    validation.between("probability", probability, 0.0, MAX_PHONES)
    share = np.interp(rng.random(n_clients), REACHABLE_LEVELS, REACHABLE_SHARE)
    share *= probability / max(share.mean(), 1e-12)
    share = np.minimum(share, 0.8)
    comes = (1 - STAYS) * share / (1 - share)
    state = np.zeros((N_STEPS, n_clients), dtype=np.int8)
    here = rng.random(n_clients) < share
    for step in range(N_STEPS):
        state[step] = here
        here = rng.random(n_clients) < np.where(here, STAYS, comes)
    return RecordedAvailability(state, np.arange(n_clients), rounds_per_step)


# --- by name --------------------------------------------------------------------------------------


def always(n_clients: int, rng: Rng) -> Always:
    """Return that all clients are always available."""
    return Always()


def independent(n_clients: int, rng: Rng, *, probability: float) -> Independent:
    """Return that each client is available with a probability, in every round anew."""
    return Independent(probability)


AVAILABILITIES: Registry[Callable[..., Availability]] = Registry(
    "availability",
    {
        "always": always,
        "independent": independent,
        "phones": phones_availability,
        "recorded": read_availability,
        "intervals": read_intervals,
        "week": phone_week,
    },
    group="bsfl.availabilities",
    given=("n_clients", "rng"),
)
"""Availabilities by name; a custom one is a function (n_clients, rng) that returns one."""
