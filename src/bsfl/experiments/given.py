"""Parts of a scenario that no file can hold: a policy, a fleet or a task given as an object.

Such a scenario is run and reported like any other. The manifest holds the name of an object, its
settings and a digest of its code or of what it draws, so that a folder is only continued with the
same objects.
"""

import copy
import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import CellType
from typing import Any, ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.registry import Registry, check_kind
from bsfl.errors import InvalidInput
from bsfl.experiments.learning_spec import Known
from bsfl.learning import Task
from bsfl.policies import POLICIES, Policy
from bsfl.random import stream
from bsfl.simulation.clients import SimulatedClients
from bsfl.types import FloatArray

OBJECT = "object"
"""Key of a table that describes an object; nothing can be made of it again."""
EMPTY_CELL = CellType()
FIRST_ROUNDS = 3
"""Rounds whose draws distinguish fleets."""


@dataclass(frozen=True, slots=True, eq=False)
class GivenPolicy:
    """A policy given as an object: every run gets a copy of it."""

    policy: Policy

    def __call__(self) -> Policy:
        return copy.deepcopy(self.policy)

    @property
    def is_oracle(self) -> bool:
        return bool(getattr(self.policy, "is_oracle", False))


@dataclass(frozen=True, slots=True, eq=False)
class GivenClients:
    """A fleet given as an object, or a function from a seed to one.

    A fleet has the same clients with all seeds; what they do is drawn anew with each.
    """

    fleet: SimulatedClients | Callable[[int], SimulatedClients]
    first: SimulatedClients = field(init=False)
    drift: ClassVar[None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", self.build(0))

    @property
    def n_clients(self) -> int:
        return self.first.n_clients

    @property
    def tau_min(self) -> float:
        return self.first.tau_min

    @property
    def tau_max(self) -> float:
        return self.first.tau_max

    @property
    def data(self) -> bool:
        """Whether it is known how much data clients have."""
        return self.first.samples is not None

    def build(
        self,
        seed: int,
        *,
        samples: FloatArray | None = None,
        quality: FloatArray | None = None,
        ids: Sequence[str] | None = None,
    ) -> SimulatedClients:
        """Return the fleet with this seed; samples, quality and ids may come from a task."""
        made = self.fleet if isinstance(self.fleet, SimulatedClients) else self.fleet(seed)
        if not isinstance(made, SimulatedClients):
            raise InvalidInput(f"the function of a seed must return SimulatedClients, got {made!r}")
        return replace(
            made,
            seed=seed,
            samples=made.samples if samples is None else samples,
            quality=made.quality if quality is None else quality,
            ids=made.ids if ids is None else ids,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GivenTask:
    """A task given as an object, or what makes one for each seed, by name or as an object.

    Attributes:
        given: A task; or a function or class (n_clients, rng, settings) or the name of one.
        settings: Its settings.
        weighting, evaluate_every_s, target_accuracy: As of a LearningSpec.
        packages: Packages that the numbers depend on; unknown for a custom task.
    """

    given: str | Task | Callable[..., Task]
    settings: dict[str, Any] = field(default_factory=dict)
    weighting: str = "samples"
    evaluate_every_s: float = 0.0
    target_accuracy: float | None = None
    packages: tuple[str, ...] = ()

    def data(self, n_clients: int, seed: int) -> Known:
        """Return the samples of every client and, where the task says so, their names."""
        task = self.task(n_clients, seed)
        return Known(np.asarray(task.samples, dtype=np.float64), ids=getattr(task, "ids", None))

    def task(self, n_clients: int, seed: int, *, workers: int | None = None) -> Task:
        """Return the task with one seed."""
        is_task = hasattr(self.given, "aggregate") and not isinstance(self.given, type)
        made: Any = self.given
        if not is_task:
            made = TASKS.call(made, n_clients, stream(seed, "task"), **self.settings)
        check_kind("a task", made, TASK_METHODS)
        if made.n_clients != n_clients:
            raise InvalidInput(
                f"the task must have the fleet's {n_clients} clients, got {made.n_clients}"
            )
        validation.numbers("samples of a task", made.samples)
        return made  # type: ignore[no-any-return]


TASKS: Registry[Callable[..., Task]] = Registry(
    "task", {}, group="bsfl.tasks", given=("n_clients", "rng")
)
"""Tasks by name: functions or classes (n_clients, rng, settings), all of them custom."""
TASK_METHODS = ("n_clients", "samples", "init", "train", "aggregate", "evaluate")


def policy_entry(policy: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a policy as an entry of a scenario: maker, settings, and how it is written.

    Args:
        policy: A registry name, a class or an instance.
    """
    if isinstance(policy, type):
        name: Any = POLICIES.name_of(policy) or policy
        written = {"policy": name} if isinstance(name, str) else described(policy)
        return name, {}, written
    if isinstance(policy, str):
        return policy, {}, {"policy": policy}
    if not isinstance(policy, Policy):
        raise InvalidInput(
            "a policy must be a name, mine.py:Class, a class or an instance with init, select and "
            f"observe, got {policy!r}"
        )
    settings = POLICIES.plain(policy)
    if settings is not None:
        name = POLICIES.name_of(policy)
        return name, settings, {"policy": name, **settings}
    return GivenPolicy(policy), {}, described(policy)


def described(thing: Any) -> dict[str, Any]:
    """Return a description of an object: its class, its settings and the digest of its code."""
    kind = thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)
    own = {}
    if kind is not thing:
        names = (
            [f.name for f in fields(thing)]
            if is_dataclass(thing)
            else getattr(thing, "__dict__", {})
        )
        own = {name: _stable(getattr(thing, name)) for name in names}
    return {OBJECT: kind.__qualname__, "settings": own, "code": _code(kind)}


def described_fleet(given: GivenClients, seed: int) -> dict[str, Any]:
    """Return a description of a fleet: its size, and a digest of what its clients do."""
    fleet, digest = given.build(seed), hashlib.sha256()
    for t in range(1, 1 + FIRST_ROUNDS):
        digest.update(fleet.latencies(t, 0.0).tobytes())
        digest.update(fleet.available(t, 0.0).tobytes())
    known = (fleet.samples, fleet.quality, fleet.features)
    digest.update(
        b"".join(np.asarray(one, dtype=float).tobytes() for one in known if one is not None)
    )
    return {
        OBJECT: "SimulatedClients",
        "n_clients": fleet.n_clients,
        "tau_min": fleet.tau_min,
        "tau_max": fleet.tau_max,
        "draws": digest.hexdigest(),
    }


def _stable(value: Any) -> str:
    """Return a value as text, without addresses in memory; long arrays by their digest."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _code(kind: Any) -> str:
    """Return the digest of what a class or function does: its source, or its byte code."""
    kinds = kind.__mro__ if isinstance(kind, type) else (kind,)
    digest = hashlib.sha256()
    for one in kinds:
        if (getattr(one, "__module__", None) or "builtins").partition(".")[0] in (
            "bsfl",
            "builtins",
        ):
            continue
        own = vars(one).values() if isinstance(one, type) else (one,)
        for part in own:
            function = inspect.unwrap(getattr(part, "__func__", getattr(part, "fget", part)))
            if inspect.isfunction(function):
                digest.update(_source(function))
    return digest.hexdigest()


def _source(function: Any) -> bytes:
    """Return what a function is made of: its text, and the values that it closes over."""
    try:
        code = inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = function.__code__.co_code
    around = [
        _stable(cell.cell_contents) for cell in function.__closure__ or () if cell != EMPTY_CELL
    ]
    return code + " ".join(around).encode(errors="replace")
