"""From the settings in a scenario file to a simulated fleet."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.fleet import AVAILABILITIES, POPULATIONS, Flaky, Fleet, Scaled, Swapped
from bsfl.fleet.latency import MAX_SIGMA, Latencies
from bsfl.fleet.lies import Lies
from bsfl.fleet.phones import phone_features
from bsfl.randomness import stream
from bsfl.records import FloatArray, Rng
from bsfl.registry import Registry, check_kind

MAX_CLIENTS = 10_000_000
"""Clients of a simulated fleet; so many take some GB of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSpec:
    """A share of the clients changes speed in round `at`.

    kind "swap": they exchange their latencies among each other. kind "scale": theirs are
    multiplied by `factor`, at once or over `ramp` rounds.
    """

    at: int
    share: float
    kind: Literal["swap", "scale"] = "swap"
    factor: float = 1.0
    ramp: int = 0

    def __post_init__(self) -> None:
        checks.natural("at", self.at)
        checks.between("share", self.share, 0.0, 1.0)
        checks.one_of("kind", self.kind, ("swap", "scale"))
        checks.positive("factor", self.factor)
        checks.natural("ramp", self.ramp, low=0)
        if self.kind == "swap" and (self.factor != 1.0 or self.ramp):
            raise InvalidInput("factor and ramp belong to kind = 'scale'")
        if self.kind == "scale" and self.factor == 1.0:
            raise InvalidInput("kind = 'scale' needs a factor other than 1")

    def apply(self, base: Latencies, rng: Rng) -> Latencies:
        n_clients = base.n_clients
        who = rng.choice(n_clients, round(self.share * n_clients), replace=False)
        if len(who) < 2:
            raise InvalidInput(
                f"share must move at least 2 of the {n_clients} clients, got {self.share}"
            )
        if self.kind == "swap":
            source = np.arange(n_clients)
            source[who] = np.roll(who, 1)  # who is in random order: a random cycle
            return Swapped(base, source, self.at)
        factor = np.ones(n_clients)
        factor[who] = self.factor
        return Scaled(base, factor, self.at, self.ramp)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailuresSpec:
    """Answers that are lost: those of all clients alike, or of a few more often.

    Attributes:
        probability: How often an answer is lost, of everyone or of the flaky ones.
        share: Share of the clients that are flaky; None: all alike.
        base: How often an answer of the others is lost.
    """

    probability: float
    share: float | None = None
    base: float = 0.0

    def __post_init__(self) -> None:
        checks.between("probability", self.probability, 0.0, 1.0)
        checks.between("base", self.base, 0.0, 1.0)
        if self.share is not None:
            checks.between("share", self.share, 0.0, 1.0)
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
class LiesSpec:
    """Clients that lie about their time, their loss or both.

    Attributes:
        share: Share of the clients that do.
        time: Whether they claim to be as fast as the fastest.
        loss: What they multiply their loss by.
    """

    share: float
    time: bool = False
    loss: float = 1.0

    def __post_init__(self) -> None:
        checks.between("share", self.share, 0.0, 1.0)
        checks.positive("loss", self.loss)
        if not isinstance(self.time, bool):
            raise InvalidInput(f"time must be true or false, got {self.time!r}")
        if not self.time and self.loss == 1.0:
            raise InvalidInput("liars must lie about something: time = true or a loss other than 1")

    def build(self, n_clients: int, rng: Rng) -> Lies:
        liars = np.zeros(n_clients, dtype=bool)
        liars[rng.choice(n_clients, round(self.share * n_clients), replace=False)] = True
        return Lies(liars=liars, time=self.time, loss=self.loss)


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
        checks.at_least("mean_samples", self.mean_samples, 1.0)
        checks.between("size_sigma", self.size_sigma, 0.0, MAX_SIGMA)
        low, high = checks.span("quality", self.quality)
        if not 0 < low <= high <= 1:
            raise InvalidInput(f"quality must be a range within (0, 1], got {list(self.quality)}")

    def build(self, n_clients: int, rng: Rng) -> tuple[FloatArray, FloatArray]:
        """Return samples and quality of every client."""
        sizes = np.exp(self.size_sigma * rng.normal(size=n_clients))
        samples = np.maximum(1.0, np.round(self.mean_samples * sizes / sizes.mean()))
        return samples, rng.uniform(*self.quality, n_clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesSpec:
    """What the server knows of phones beforehand: computing time and bandwidth, roughly.

    Attributes:
        noise: Standard deviation of the error in the logarithm of each.
    """

    noise: float = 0.3

    def __post_init__(self) -> None:
        checks.between("noise", self.noise, 0.0, MAX_SIGMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """Everything needed to make a world from a seed.

    Attributes:
        n_clients, tau_min, tau_max: As of a Fleet.
        population: Name of a population, and population_settings its settings.
        availability: Name of a kind of availability, and availability_settings its settings.
        drift, failures, lies, data, features: What else there is; None: nothing of the kind.
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
    lies: LiesSpec | None = None
    data: DataSpec | None = None
    features: FeaturesSpec | None = None

    def __post_init__(self) -> None:
        if checks.natural("n_clients", self.n_clients) > MAX_CLIENTS:
            raise InvalidInput(f"n_clients must be at most {MAX_CLIENTS:,}, got {self.n_clients:,}")
        if self.features and self.population != "phones":
            raise InvalidInput("[fleet.features] are known of population = 'phones' only")
        self.build(seed=0)  # whatever is wrong with the settings shows before anything runs

    def build(
        self,
        seed: int,
        *,
        samples: FloatArray | None = None,
        quality: FloatArray | None = None,
        ids: Sequence[str] | None = None,
    ) -> Fleet:
        """Return the world with this seed; samples, quality and ids may come from real data."""
        rng = partial(stream, seed)
        if self.data:
            samples, quality = self.data.build(self.n_clients, rng("data"))
        told = {"samples": samples, "ids": ids}
        latency = self._part(
            POPULATIONS, self.population, self.population_settings, rng("population"), told
        )
        check_kind(f"population {self.population!r}", latency, LATENCIES)
        if latency.n_clients != self.n_clients:
            raise InvalidInput(
                f"population {self.population!r} must have the {self.n_clients} clients of the "
                f"fleet, got {latency.n_clients}"
            )
        told["ids"] = ids = getattr(latency, "ids", None) if ids is None else ids
        lives = self._part(
            AVAILABILITIES, self.availability, self.availability_settings, rng("devices"), told
        )
        check_kind(f"availability {self.availability!r}", lives, AVAILABILITY)
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
        return Fleet(
            latency=latency,
            tau_min=self.tau_min,
            tau_max=self.tau_max,
            seed=seed,
            availability=lives,
            samples=samples,
            quality=quality,
            features=features,
            lies=self.lies.build(self.n_clients, rng("lies")) if self.lies else None,
            ids=ids,
        )

    def _part(
        self,
        known: Registry[Any],
        name: str,
        settings: dict[str, Any],
        rng: Rng,
        told: dict[str, Any],
    ) -> Any:
        """Return a part of the world; it is told of the clients what it asks for."""
        asked = known.settings(name)
        more = {key: value for key, value in told.items() if key in asked and value is not None}
        return known.call(name, self.n_clients, rng, **more | settings)


LATENCIES = ("n_clients", "draw", "mean_inverse", "phase")
AVAILABILITY = ("reachable",)
"""What a population and an availability of one's own must have."""
