"""Which clients can be reached in a round."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.records import BoolArray


class Availability(Protocol):
    """Who can be reached, round by round."""

    def reachable(self, t: int, n_clients: int, rng: np.random.Generator) -> BoolArray:
        """Return whether each client can be reached in round t."""
        ...


@dataclass(frozen=True, slots=True)
class Always:
    """Everyone, always."""

    def reachable(self, t: int, n_clients: int, rng: np.random.Generator) -> BoolArray:
        """Return True for everyone."""
        return np.ones(n_clients, dtype=bool)


@dataclass(frozen=True, slots=True)
class Independent:
    """Each client with the same probability, independently in every round."""

    probability: float

    def __post_init__(self) -> None:
        checks.between("probability", self.probability, 0.0, 1.0)

    def reachable(self, t: int, n_clients: int, rng: np.random.Generator) -> BoolArray:
        """Return a coin flip for everyone."""
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

    def reachable(self, t: int, n_clients: int, rng: np.random.Generator) -> BoolArray:
        """Return what was recorded."""
        step = (t - 1) // self.rounds_per_step % len(self.state)
        recorded: BoolArray = self.state[step, self.device] == 1
        return recorded


def read_availability(
    path: Path, n_clients: int, rng: np.random.Generator, *, rounds_per_step: int = 1
) -> RecordedAvailability:
    """Return the availability recorded in an .npz (array `state`) or .npy file of [time, device].

    Each client follows a random device, twice the same one only if there are fewer devices.
    """
    try:
        content = np.load(path, allow_pickle=False)
    except (OSError, ValueError):
        raise InvalidInput(f"{path} cannot be read as an .npz or .npy file") from None
    if isinstance(content, np.lib.npyio.NpzFile):
        if "state" not in content:
            raise InvalidInput(f"{path}: there is no array 'state' in the file")
        content = content["state"]
    if content.ndim != 2 or content.size == 0 or not np.isin(content, (-1, 0, 1)).all():
        raise InvalidInput(f"{path}: availability must be [time, device] with values 1, 0 and -1")
    n_devices = content.shape[1]
    device = rng.choice(n_devices, n_clients, replace=n_clients > n_devices)
    checks.natural("rounds_per_step", rounds_per_step)
    return RecordedAvailability(content.astype(np.int8), device, rounds_per_step)
