"""Simulated clients: latencies, availability and data sizes that policies never see.

Malicious ones report falsely what the server cannot measure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bsfl import validation
from bsfl._core.registry import check_kind
from bsfl.errors import InvalidInput
from bsfl.random import stream
from bsfl.simulation.availability import Always, Availability
from bsfl.simulation.intervals import Intervals
from bsfl.simulation.latency import LATENCIES, Latencies, Swapped
from bsfl.types import MAX_LOSS, BoolArray, FloatArray, IntArray, Rng, RoundReport


@dataclass(frozen=True, slots=True, kw_only=True)
class MaliciousClients:
    """What malicious clients report. How long they take in truth does not change.

    Attributes:
        is_malicious: Whether each client is one.
        time: Whether they claim to be as fast as the fastest response that the server ever
            measured: a server ignores faster claims.
        loss: What they multiply their loss by; the largest that is reported is 1e12.
    """

    is_malicious: BoolArray
    time: bool = False
    loss: float = 1.0


@dataclass(frozen=True, slots=True)
class Reordered:
    """Availability of the same clients in another order: client k is client order[k] of `base`."""

    base: Availability
    order: IntArray

    def reachable(self, t: int, clock_s: float, n_clients: int, rng: Rng) -> BoolArray:
        return self.base.reachable(t, clock_s, n_clients, rng)[self.order]


def places(ids: Sequence[str], names: Sequence[str]) -> IntArray:
    """Return the place of each id among the names, or raise InvalidInput for the first unknown."""
    place = {name: k for k, name in enumerate(names)}
    for k, name in enumerate(ids):
        if name not in place:
            raise InvalidInput(
                f"the task and the clients must name the same clients, but client {k} of the task, "
                f"{name!r}, is none of the {len(names)} clients {', '.join(map(repr, names[:3]))}"
                f"{', ...' * (len(names) > 3)}"
            )
    return np.array([place[name] for name in ids])


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedClients:
    """Simulated clients. Every draw comes from a stream named by the seed and the round.

    So two policies with the same seed see the same latencies and the same availability, no matter
    which clients they select.

    Attributes:
        latency: How long each client takes.
        tau_min: Smallest possible latency; faster draws are lifted to it.
        tau_max: Deadline of a round; later responses are not waited for.
        seed: Root of all draws.
        availability: Which clients are available.
        samples: Data size of each client; None: all equal and unknown.
        quality: Data quality of each client; None: all 1.
        features: What the server knows of each client beforehand, [client, feature]; None: nothing.
        malicious: Which clients report falsely, and what; None: all are honest.
        ids: Names of the clients; None: those of the latencies, or their numbers.
    """

    latency: Latencies
    tau_min: float
    tau_max: float
    seed: int = 0
    availability: Availability = field(default_factory=Always)
    samples: FloatArray | None = None
    quality: FloatArray | None = None
    features: FloatArray | None = None
    malicious: MaliciousClients | None = None
    ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_kind("latency", self.latency, LATENCIES)
        validation.positive("tau_min", self.tau_min)
        validation.positive("tau_max", self.tau_max)
        if self.tau_min > self.tau_max:
            raise InvalidInput(
                f"tau_min must not exceed tau_max, got {self.tau_min!r} > {self.tau_max!r}"
            )
        if self.ids is None:
            object.__setattr__(self, "ids", getattr(self.latency, "ids", None))
        if self.ids is not None and len(self.ids) != self.n_clients:
            raise InvalidInput(f"ids must name all {self.n_clients} clients, got {len(self.ids)}")
        online = self.availability
        if isinstance(online, Intervals) and online.n_clients != self.n_clients:
            raise InvalidInput(
                f"availability must describe all {self.n_clients} clients, "
                f"got the intervals of {online.n_clients}"
            )

    @property
    def n_clients(self) -> int:
        return self.latency.n_clients

    def name(self, client: int) -> str:
        """Return the name of a client."""
        return str(client) if self.ids is None else self.ids[client]

    def in_order(self, ids: Sequence[str]) -> "SimulatedClients":
        """Return the same clients in the order of these names.

        Clients without names get these. Raises InvalidInput if the names are those of others.
        """
        if self.ids is None or list(self.ids) == list(ids):
            return replace(self, ids=ids)
        order = places(ids, self.ids)
        if len(order) != self.n_clients:
            raise InvalidInput(f"ids must name all {self.n_clients} clients, got {len(order)}")
        online, false = self.availability, self.malicious
        if isinstance(online, Intervals):
            online = online.followed_by(order)
        else:
            online = Reordered(online, order)
        return replace(
            self,
            latency=Swapped(self.latency, order, at=0),
            availability=online,
            samples=None if self.samples is None else self.samples[order],
            quality=None if self.quality is None else self.quality[order],
            features=None if self.features is None else self.features[order],
            malicious=false and replace(false, is_malicious=false.is_malicious[order]),
            ids=ids,
        )

    @property
    def significance(self) -> FloatArray:
        """d_k = q_k n_k of every client."""
        if self.samples is None:
            raise InvalidInput("the clients have no samples")
        return self.samples if self.quality is None else self.samples * self.quality

    def latencies(self, t: int, clock_s: float) -> FloatArray:
        """Return the seconds every client takes in round t, which starts at clock_s.

        Infinite if no response comes: it is lost, or the client goes offline before it is done.
        """
        drawn = np.maximum(self.latency.draw(t, stream(self.seed, "latency", t)), self.tau_min)
        if not isinstance(self.availability, Intervals):
            return drawn
        stays = clock_s + drawn <= self.availability.online_until(clock_s)  # not if offline: NaN
        return np.where(stays, drawn, np.inf)

    def available(self, t: int, clock_s: float) -> IntArray:
        """Return the clients that are available at clock_s, when round t starts."""
        rng = stream(self.seed, "availability", t)
        reachable = np.asarray(self.availability.reachable(t, clock_s, self.n_clients, rng))
        if reachable.shape != (self.n_clients,) or reachable.dtype != bool:
            raise InvalidInput(
                f"reachable must return True or False for each of the {self.n_clients} clients, "
                f"got an array of {reachable.dtype} with shape {reachable.shape}"
            )
        return np.flatnonzero(reachable)

    def online_s(self, clock_s: float) -> FloatArray | None:
        """Return for how many seconds each client has been online at clock_s, NaN if it is not.

        None where availability has no clock.
        """
        online = self.availability
        return online.online_s(clock_s) if isinstance(online, Intervals) else None

    def mean_speed(self, t: int) -> FloatArray:
        """Return the true mu_k = E[tau_min / min(tau_k, tau_max)] in round t."""
        return self.tau_min * self.latency.mean_inverse(t, self.tau_min, self.tau_max)


class FalseReports:
    """The reports that the server receives; it remembers the fastest latency that it measured."""

    def __init__(self, malicious: MaliciousClients | None) -> None:
        self.malicious, self.fastest_s = malicious, np.inf

    def of(self, report: RoundReport) -> RoundReport:
        """Return a report as the server receives it."""
        malicious, responded = self.malicious, report.responded
        if malicious is None:
            return report
        self.fastest_s = min(self.fastest_s, report.latency_s[responded].min(initial=np.inf))
        is_false = malicious.is_malicious[report.clients] & responded
        fastest_s = np.minimum(self.fastest_s, report.latency_s)
        latency_s = np.where(is_false & malicious.time, fastest_s, report.latency_s)
        loss = np.where(is_false, np.minimum(report.loss * malicious.loss, MAX_LOSS), report.loss)
        return replace(report, latency_s=latency_s, loss=loss)
