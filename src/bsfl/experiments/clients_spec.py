"""From the settings in a scenario file to simulated clients."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from bsfl import validation
from bsfl._core.registry import Registry, check_kind
from bsfl.errors import InvalidInput
from bsfl.random import stream
from bsfl.simulation.availability import AVAILABILITIES
from bsfl.simulation.clients import SimulatedClients
from bsfl.simulation.false_reports import MaliciousClients
from bsfl.simulation.latency import MAX_SIGMA, Flaky, Latencies, Scaled, Swapped
from bsfl.simulation.populations import POPULATIONS, phone_features
from bsfl.types import FloatArray, Rng

MAX_CLIENTS = 10_000_000
"""Clients of a simulated fleet; so many take some GB of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSpec:
    """A share of the clients changes speed in round `at`.

    kind "swap": they exchange their latencies. kind "scale": their latencies are multiplied by
    `factor`, at once or over `ramp` rounds.
    """

    at: int
    share: float
    kind: Literal["swap", "scale"] = "swap"
    factor: float = 1.0
    ramp: int = 0

    def __post_init__(self) -> None:
        validation.natural("at", self.at)
        validation.between("share", self.share, 0.0, 1.0)
        validation.one_of("kind", self.kind, ("swap", "scale"))
        validation.positive("factor", self.factor)
        validation.natural("ramp", self.ramp, low=0)
        if self.kind == "swap" and (self.factor != 1.0 or self.ramp):
            raise InvalidInput("factor and ramp belong to kind = 'scale'")
        if self.kind == "scale" and self.factor == 1.0:
            raise InvalidInput("kind = 'scale' needs a factor other than 1")

    def apply(self, base: Latencies, rng: Rng) -> Latencies:
        n_clients = base.n_clients
        movers = rng.choice(n_clients, round(self.share * n_clients), replace=False)
        if len(movers) < 2:
            raise InvalidInput(
                f"share must move at least 2 of the {n_clients} clients, got {self.share}"
            )
        if self.kind == "swap":
            source = np.arange(n_clients)
            source[movers] = np.roll(movers, 1)  # they are in random order: a random cycle
            return Swapped(base, source, self.at)
        factor = np.ones(n_clients)
        factor[movers] = self.factor
        return Scaled(base, factor, self.at, self.ramp)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailuresSpec:
    """Responses that are lost: of all clients alike, or of some clients more often.

    Attributes:
        probability: Probability that a response is lost, of all clients or of the flaky ones.
        share: Share of the clients that are flaky; None: all alike.
        base: Probability that a response of the other clients is lost.
    """

    probability: float
    share: float | None = None
    base: float = 0.0

    def __post_init__(self) -> None:
        validation.between("probability", self.probability, 0.0, 1.0)
        validation.between("base", self.base, 0.0, 1.0)
        if self.share is not None:
            validation.between("share", self.share, 0.0, 1.0)
        elif self.base:
            raise InvalidInput("base is for the clients outside a share; give the share, too")

    def apply(self, base: Latencies, rng: Rng) -> Latencies:
        if self.share is None:
            return Flaky(base, self.probability) if self.probability else base
        n_clients = base.n_clients
        flaky = rng.choice(n_clients, round(self.share * n_clients), replace=False)
        if len(flaky) == 0:
            raise InvalidInput(
                f"share must make at least 1 of the {n_clients} clients flaky, got {self.share}"
            )
        probability = np.full(n_clients, float(self.base))
        probability[flaky] = self.probability
        return Flaky(base, probability)


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseReportsSpec:
    """Malicious clients, which report their time, their loss or both falsely.

    Attributes:
        share: Share of the clients that are malicious.
        time: Whether they claim to be as fast as the fastest.
        loss: What they multiply their loss by.
    """

    share: float
    time: bool = False
    loss: float = 1.0

    def __post_init__(self) -> None:
        validation.between("share", self.share, 0.0, 1.0)
        validation.positive("loss", self.loss)
        if not isinstance(self.time, bool):
            raise InvalidInput(f"time must be true or false, got {self.time!r}")
        if not self.time and self.loss == 1.0:
            raise InvalidInput("something must be false: give time = true or a loss other than 1")

    def build(self, n_clients: int, rng: Rng) -> MaliciousClients:
        is_malicious = np.zeros(n_clients, dtype=bool)
        is_malicious[rng.choice(n_clients, round(self.share * n_clients), replace=False)] = True
        return MaliciousClients(is_malicious=is_malicious, time=self.time, loss=self.loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """How much data clients have and how good it is.

    Attributes:
        mean_samples: Mean number of samples of a client.
        size_sigma: Standard deviation of the logarithm of the sizes; 0: all equal.
        quality: Range of the uniform data quality.
    """

    mean_samples: float = 120.0
    size_sigma: float = 0.0
    quality: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        validation.at_least("mean_samples", self.mean_samples, 1.0)
        validation.between("size_sigma", self.size_sigma, 0.0, MAX_SIGMA)
        low, high = validation.span("quality", self.quality)
        if not 0 < low <= high <= 1:
            raise InvalidInput(f"quality must be a range within (0, 1], got {list(self.quality)}")

    def build(self, n_clients: int, rng: Rng) -> tuple[FloatArray, FloatArray]:
        """Return samples and quality of every client."""
        sizes = np.exp(self.size_sigma * rng.normal(size=n_clients))
        samples = np.maximum(1.0, np.round(self.mean_samples * sizes / sizes.mean()))
        return samples, rng.uniform(*self.quality, n_clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesSpec:
    """Features of phones that the server knows beforehand: rough computing time and bandwidth.

    Attributes:
        noise: Standard deviation of the error in the logarithm of each.
    """

    noise: float = 0.3

    def __post_init__(self) -> None:
        validation.between("noise", self.noise, 0.0, MAX_SIGMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsSpec:
    """Everything needed to make simulated clients from a seed.

    Attributes:
        n_clients, tau_min, tau_max: As of a SimulatedClients.
        population: Name of a population, and population_settings its settings.
        availability: Name of a kind of availability, and availability_settings its settings.
        drift, failures, false_reports, data, features: Optional parts.
    """

    n_clients: int
    tau_min: float
    tau_max: float
    population: str
    population_settings: dict[str, Any]
    availability: str = "always"
    availability_settings: dict[str, Any] = field(default_factory=dict)
    drift: DriftSpec | None = None
    failures: FailuresSpec | None = None
    false_reports: FalseReportsSpec | None = None
    data: DataSpec | None = None
    features: FeaturesSpec | None = None

    def __post_init__(self) -> None:
        if validation.natural("n_clients", self.n_clients) > MAX_CLIENTS:
            raise InvalidInput(f"n_clients must be at most {MAX_CLIENTS:,}, got {self.n_clients:,}")
        if self.features and self.population != "phones":
            raise InvalidInput("[fleet.features] are known of population = 'phones' only")
        self.build(seed=0)  # wrong settings show before anything runs

    def build(
        self,
        seed: int,
        *,
        samples: FloatArray | None = None,
        quality: FloatArray | None = None,
        ids: Sequence[str] | None = None,
    ) -> SimulatedClients:
        """Return the clients with this seed; samples, quality and ids may come from real data."""
        rng = partial(stream, seed)
        if self.data:
            samples, quality = self.data.build(self.n_clients, rng("data"))
        known = {"samples": samples, "ids": ids}
        latency = self._part(
            POPULATIONS, self.population, self.population_settings, rng("population"), known
        )
        check_kind(f"population {self.population!r}", latency, LATENCIES)
        if latency.n_clients != self.n_clients:
            raise InvalidInput(
                f"population {self.population!r} must have the {self.n_clients} clients of the "
                f"fleet, got {latency.n_clients}"
            )
        known["ids"] = ids = getattr(latency, "ids", None) if ids is None else ids
        online = self._part(
            AVAILABILITIES, self.availability, self.availability_settings, rng("devices"), known
        )
        check_kind(f"availability {self.availability!r}", online, AVAILABILITY)
        if self.drift:
            latency = self.drift.apply(latency, rng("drift"))
        if self.failures:
            latency = self.failures.apply(latency, rng("failures"))
        features = None
        if self.features:
            drawn_as, noise_rng = rng("population"), rng("features")
            features = phone_features(
                self.n_clients, drawn_as, noise_rng, noise=self.features.noise
            )
        malicious = None
        if self.false_reports:
            malicious = self.false_reports.build(self.n_clients, rng("false-reports"))
        return SimulatedClients(
            latency=latency,
            tau_min=self.tau_min,
            tau_max=self.tau_max,
            seed=seed,
            availability=online,
            samples=samples,
            quality=quality,
            features=features,
            malicious=malicious,
            ids=ids,
        )

    def _part(
        self,
        registry: Registry[Any],
        name: str,
        settings: dict[str, Any],
        rng: Rng,
        known: dict[str, Any],
    ) -> Any:
        """Return a component by name; of what is known it gets what its parameters name."""
        names = registry.settings(name)
        more = {key: value for key, value in known.items() if key in names and value is not None}
        return registry.call(name, self.n_clients, rng, **more | settings)


LATENCIES = ("n_clients", "draw", "mean_inverse", "phase")
AVAILABILITY = ("reachable",)
"""Attributes that a custom population and a custom availability must have."""
