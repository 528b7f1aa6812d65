"""The tables [clients...] of a scenario: from settings to simulated clients."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, StrictBool, Tag, model_validator

from bsfl import validation
from bsfl._core.registry import check_kind
from bsfl.errors import InvalidInput
from bsfl.experiments.parts import Given, Named, Part, at, by_key, kind_by_default, rule
from bsfl.random import stream
from bsfl.simulation.availability import AVAILABILITIES, read_state
from bsfl.simulation.client_rows import file_path, read_numbers
from bsfl.simulation.clients import MaliciousClients, SimulatedClients
from bsfl.simulation.intervals import COLUMNS, MAX_S
from bsfl.simulation.latency import LATENCIES, MAX_SIGMA, Flaky, Latencies, Scaled, Swapped
from bsfl.simulation.populations import POPULATIONS, phone_features, read_trace
from bsfl.types import FloatArray, IntArray, Rng

MAX_CLIENTS = 10_000_000
"""Clients of a simulation; so many take some GB of memory."""
FIRST_ROUNDS = 3
"""Rounds whose draws distinguish clients that are given as objects."""
AVAILABILITY = ("reachable",)
"""Attributes that a custom availability must have."""

Count = Annotated[int, rule(validation.natural)]
Positive = Annotated[float, rule(validation.positive)]
Share = Annotated[float, rule(validation.between, 0.0, 1.0)]
Sigma = Annotated[float, rule(validation.between, 0.0, MAX_SIGMA)]


class Latency(Named):
    """How long clients take; further keys are the settings of the population."""

    registry, key = POPULATIONS, "population"
    population: str


class Online(Named):
    """Which clients are available; further keys are the settings of the kind."""

    registry = AVAILABILITIES
    kind: str = "always"


class Swap(Part):
    """From round `at`, a share of the clients exchange their latencies."""

    kind: Literal["swap"] = "swap"
    at: Count
    share: Share

    def apply(self, base: Latencies, rng: Rng) -> Latencies:
        movers = _some(base.n_clients, self.share, rng, at_least=2)
        source = np.arange(base.n_clients)
        source[movers] = np.roll(movers, 1)  # they are in random order: a random cycle
        return Swapped(base, source, self.at)


class Scale(Part):
    """From round `at`, latencies of a share are multiplied by a factor, over `ramp` rounds."""

    kind: Literal["scale"]
    at: Count
    share: Share
    factor: Positive
    ramp: Annotated[int, rule(validation.natural, 0)] = 0

    def apply(self, base: Latencies, rng: Rng) -> Latencies:
        factor = np.ones(base.n_clients)
        factor[_some(base.n_clients, self.share, rng, at_least=2)] = self.factor
        return Scaled(base, factor, self.at, self.ramp)


def _some(n_clients: int, share: float, rng: Rng, *, at_least: int = 0) -> IntArray:
    """Return a random share of the clients, in random order."""
    some = rng.choice(n_clients, round(share * n_clients), replace=False)
    if len(some) < at_least:
        raise InvalidInput(
            f"share must be at least {at_least} of the {n_clients} clients, got {share}"
        )
    return some


class Failures(Part):
    """Responses that are lost with a probability: of all clients, or of a share of them.

    Those of the clients outside the share are lost with probability `base`.
    """

    probability: Share
    share: Share | None = None
    base: Share = 0.0

    @model_validator(mode="after")
    def _check_base(self) -> Self:
        if self.base and self.share is None:
            raise InvalidInput("base is for the clients outside a share; give the share, too")
        return self

    def apply(self, base: Latencies, rng: Rng) -> Latencies:
        if self.share is None:
            return Flaky(base, self.probability)
        probability = np.full(base.n_clients, self.base)
        probability[_some(base.n_clients, self.share, rng, at_least=1)] = self.probability
        return Flaky(base, probability)


class FalseReports(Part):
    """A share of the clients claims to be as fast as the fastest, or a loss times as large."""

    share: Share
    time: StrictBool = False
    loss: Positive = 1.0

    @model_validator(mode="after")
    def _check_falsehood(self) -> Self:
        if not self.time and self.loss == 1.0:
            raise InvalidInput("something must be false: give time = true or a loss other than 1")
        return self

    def build(self, n_clients: int, rng: Rng) -> MaliciousClients:
        is_malicious = np.zeros(n_clients, dtype=bool)
        is_malicious[_some(n_clients, self.share, rng)] = True
        return MaliciousClients(is_malicious=is_malicious, time=self.time, loss=self.loss)


def _quality(name: str, value: Any) -> tuple[float, float]:
    low, high = validation.span(name, value)
    if not 0 < low <= high <= 1:
        raise InvalidInput(f"{name} must be a range within (0, 1], got {[low, high]}")
    return low, high


class Data(Part):
    """How much data clients have and how good it is.

    Attributes:
        mean_samples: Mean number of samples of a client.
        size_sigma: Standard deviation of the logarithm of the sizes; 0: all equal.
        quality: Range of the uniform data quality.
    """

    mean_samples: Annotated[float, rule(validation.at_least, 1.0)] = 120.0
    size_sigma: Sigma = 0.0
    quality: Annotated[tuple[float, float], rule(_quality)] = (1.0, 1.0)

    def build(self, n_clients: int, rng: Rng) -> tuple[FloatArray, FloatArray]:
        """Return samples and quality of every client."""
        sizes = np.exp(self.size_sigma * rng.normal(size=n_clients))
        samples = np.maximum(1.0, np.round(self.mean_samples * sizes / sizes.mean()))
        return samples, rng.uniform(*self.quality, n_clients)


class Features(Part):
    """Features of phones that the server knows beforehand, with errors: see phone_features."""

    noise: Sigma = 0.3


class Clients(Part):
    """Simulated clients, which are made from a seed.

    Attributes:
        n_clients: K; where it is not given, as many as the trace, the availability or the data has.
        tau_min: Smallest possible latency, seconds.
        tau_max: Deadline of a round, seconds.
    """

    n_clients: Annotated[int, rule(validation.natural, 1, MAX_CLIENTS)] = 0
    tau_min: Positive
    tau_max: Positive
    latency: Latency
    availability: Online = Online()
    drift: Annotated[Swap | Scale, Field(discriminator="kind"), kind_by_default("swap")] | None = (
        None
    )
    failures: Failures | None = None
    false_reports: FalseReports | None = None
    data: Data | None = None
    features: Features | None = None

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.tau_min > self.tau_max:
            raise InvalidInput(
                f"tau_min must not exceed tau_max, got {self.tau_min!r} > {self.tau_max!r}"
            )
        if self.features and self.latency.population != "phones":
            raise InvalidInput("[clients.features] are known of population = 'phones' only")
        return self

    @property
    def is_custom(self) -> bool:
        """Whether making the clients executes a file of the user's own."""
        return self.latency.is_custom or self.availability.is_custom

    def n_recorded(self) -> int | None:
        """Return how many clients the trace has, else the availability; None: no file says it."""
        if (recorded := self.recorded_names()) is not None:
            return len(recorded)
        kind = self.availability.kind
        with at("[clients.availability]"):
            path = self.availability.settings.get("path")
            if kind == "intervals":
                _, rows = read_numbers(file_path(path), (COLUMNS,), limits=(0.0, MAX_S))
                return len({client for _, client, _ in rows})
            if kind == "recorded":
                return len(read_state(file_path(path))[0])
        return None

    def recorded_names(self) -> list[str] | None:
        """Return the names of all clients in the trace; None: the latencies are no trace."""
        if self.latency.population != "trace":
            return None
        with at("[clients.latency]"):
            return list(read_trace(file_path(self.latency.settings.get("path")))[1])

    def names(self, seed: int) -> Sequence[str] | None:
        """Return the names of the clients with this seed, in their order; None: they have none."""
        return self.build(seed).ids

    def build(
        self,
        seed: int,
        *,
        samples: FloatArray | None = None,
        quality: FloatArray | None = None,
        ids: Sequence[str] | None = None,
    ) -> SimulatedClients:
        """Return the clients with this seed.

        Samples, quality and ids may come from a task or its data, in the order of its clients.
        """
        rng = partial(stream, seed)
        if self.data:
            samples, quality = self.data.build(self.n_clients, rng("data"))
        known = {"samples": samples, "ids": ids}
        with at("[clients.latency]"):
            latency = self._make(self.latency, rng("population"), known)
            check_kind(f"population {self.latency.name!r}", latency, LATENCIES)
            if latency.n_clients != self.n_clients:
                raise InvalidInput(
                    f"population {self.latency.name!r} must have the {self.n_clients} clients, "
                    f"got {latency.n_clients}"
                )
        own = getattr(latency, "ids", None)
        known["ids"] = ids if own is None else own
        with at("[clients.availability]"):
            online = self._make(self.availability, rng("devices"), known)
            check_kind(f"availability {self.availability.name!r}", online, AVAILABILITY)
        if self.drift:
            with at("[clients.drift]"):
                latency = self.drift.apply(latency, rng("drift"))
        if self.failures:
            with at("[clients.failures]"):
                latency = self.failures.apply(latency, rng("failures"))
        features = malicious = None
        if self.features:
            drawn_as, noise_rng = rng("population"), rng("features")
            features = phone_features(
                self.n_clients, drawn_as, noise_rng, noise=self.features.noise
            )
        if self.false_reports:
            malicious = self.false_reports.build(self.n_clients, rng("false-reports"))
        clients = SimulatedClients(
            latency=latency,
            tau_min=self.tau_min,
            tau_max=self.tau_max,
            seed=seed,
            availability=online,
            features=features,
            malicious=malicious,
            ids=own,
        )
        clients = clients if ids is None else clients.in_order(ids)
        return replace(clients, samples=samples, quality=quality)

    def _make(self, table: Named, rng: Rng, known: dict[str, Any]) -> Any:
        """Return a component by name; of what is known it gets what its parameters name."""
        names = table.registry.settings(table.name)
        more = {key: value for key, value in known.items() if key in names and value is not None}
        return table.registry.call(table.name, self.n_clients, rng, **more | table.settings)


class GivenClients(Given):
    """Simulated clients given as an object, or as a function from a seed to one.

    An object has the same clients with all seeds; what they do is drawn anew with each.

    Attributes:
        n_clients, tau_min, tau_max: Those of the clients with the first seed.
        data: Whether it is known how much data clients have.
    """

    n_clients: int
    tau_min: float
    tau_max: float
    data: bool = False
    drift: ClassVar[None] = None

    @classmethod
    def of(cls, thing: SimulatedClients | Callable[[int], SimulatedClients]) -> Self:
        """Return the table that holds clients, described by what they do in the first rounds."""
        clients = made_with(thing, thing.seed if isinstance(thing, SimulatedClients) else 0)
        digest = hashlib.sha256()
        for t in range(1, 1 + FIRST_ROUNDS):
            digest.update(clients.latencies(t, 0.0).tobytes())
            digest.update(clients.available(t, 0.0).tobytes())
        for one in (clients.samples, clients.quality, clients.features):
            digest.update(b"" if one is None else np.asarray(one, dtype=float).tobytes())
        return cls(
            object=getattr(thing, "__qualname__", type(thing).__qualname__),
            settings=f"draws {digest.hexdigest()}",
            n_clients=clients.n_clients,
            tau_min=clients.tau_min,
            tau_max=clients.tau_max,
            data=clients.samples is not None,
            made=thing,
        )

    def recorded_names(self) -> None:
        """Return None: the clients come from no trace."""

    def names(self, seed: int) -> Sequence[str] | None:
        """Return the names of the clients with this seed, in their order; None: they have none."""
        return made_with(self.get(), seed).ids

    def build(
        self, seed: int, *, ids: Sequence[str] | None = None, **known: Any
    ) -> SimulatedClients:
        """Return the clients with this seed; samples, quality and ids may come from a task."""
        clients = made_with(self.get(), seed)
        clients = clients if ids is None else clients.in_order(ids)
        given = {key: value for key, value in known.items() if value is not None}
        return replace(clients, seed=seed, **given)


def made_with(thing: Any, seed: int) -> SimulatedClients:
    """Return clients given as an object, or what a function makes of the seed."""
    clients = thing if isinstance(thing, SimulatedClients) else thing(seed)
    if not isinstance(clients, SimulatedClients):
        raise InvalidInput(f"the function of a seed must return SimulatedClients, got {clients!r}")
    return clients


AnyClients = Annotated[
    Annotated[GivenClients, Tag("<object>")] | Annotated[Clients, Tag("<latency>")],
    by_key("object", "latency"),
]
"""Clients of a scenario, from a table or as an object."""
