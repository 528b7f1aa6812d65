"""Populations by name: how fast their clients are.

Each function draws a population of n_clients from rng and returns its latencies; the registry at
the end gives the names that scenario files use.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bsfl import validation
from bsfl._core.registry import Registry
from bsfl.errors import InvalidInput
from bsfl.simulation.client_rows import file_path, follow, quoted, read_numbers
from bsfl.simulation.latency import (
    MAX_SIGMA,
    Latencies,
    Noisy,
    Recorded,
    clipped_normal,
    inverse_normal,
    lognormal,
    shifted_exponential,
)
from bsfl.simulation.response_log import CsvFormat, has_responses, read_csv
from bsfl.types import LATENCY_RANGE, OK, BoolArray, FloatArray, Rng

Range = tuple[float, float]
Sizes = float | FloatArray
"""Samples that each client trains on: one number, or one for each."""


def authors_bimodal(n_clients: int, rng: Rng, *, slow_share: float = 0.1) -> Latencies:
    """Return the authors' earlier setting: a few clients ten times slower than the rest.

    tau = clip(N(mean, sd), 0.05, 1); mean U(0.85, 0.9) for the slow, U(0.05, 0.1) for the others,
    sd U(0, 0.05).
    """
    validation.between("slow_share", slow_share, 0.0, 1.0)
    slow = _share(n_clients, slow_share, rng)
    mean = np.where(slow, rng.uniform(0.85, 0.9, n_clients), rng.uniform(0.05, 0.1, n_clients))
    return clipped_normal(mean, rng.uniform(0, 0.05, n_clients), low=0.05, high=1.0)


def authors_three_speeds(
    n_clients: int, rng: Rng, *, slow_share: float = 0.1, fast_share: float = 0.03
) -> Latencies:
    """Return the authors' later setting: a few slow, most in the middle, very few fast.

    tau = clip(0.1 / N(rate, sd), 0.1, 1); rate U(0.1, 0.12) for the slow, U(0.15, 0.2) in the
    middle, U(0.93, 0.97) for the fast, sd U(0, 0.03).
    """
    validation.between("slow_share", slow_share, 0.0, 1.0)
    validation.between("fast_share", fast_share, 0.0, round(1.0 - slow_share, 9))
    place = rng.permutation(n_clients)
    rate = rng.uniform(0.15, 0.2, n_clients)
    n_slow = round(slow_share * n_clients)
    n_fast = min(round(fast_share * n_clients), n_clients - n_slow)
    rate[place[:n_slow]] = rng.uniform(0.1, 0.12, n_slow)
    rate[place[n_slow : n_slow + n_fast]] = rng.uniform(0.93, 0.97, n_fast)
    sd = rng.uniform(0, 0.03, n_clients)
    return inverse_normal(rate, sd, work=0.1, low=0.1, high=1.0)


def lognormal_population(
    n_clients: int, rng: Rng, *, median: float = 10.0, spread: float = 0.6, sigma: float = 0.2
) -> Latencies:
    """Return lognormal latencies around lognormal medians.

    Args:
        median: Median of the clients' medians, seconds.
        spread: Standard deviation of their logarithms, between clients.
        sigma: Standard deviation of the logarithm of one client's latency, between rounds.
    """
    validation.positive("median", median)
    medians = median * np.exp(
        validation.between("spread", spread, 0.0, MAX_SIGMA) * rng.normal(size=n_clients)
    )
    return lognormal(
        medians, np.full(n_clients, validation.between("sigma", sigma, 0.0, MAX_SIGMA))
    )


def exponential_population(
    n_clients: int, rng: Rng, *, shift: Range = (1.0, 10.0), scale: Range = (0.5, 5.0)
) -> Latencies:
    """Return shift + Exp(scale) with both uniform in a range, seconds."""
    for name, bounds in (("shift", shift), ("scale", scale)):
        if validation.span(name, bounds)[0] <= 0:
            raise InvalidInput(f"{name} must be a range above 0, got {bounds!r}")
    return shifted_exponential(rng.uniform(*shift, n_clients), rng.uniform(*scale, n_clients))


def equal_means(
    n_clients: int, rng: Rng, *, mean_s: float = 10.0, sigmas: Range = (0.05, 0.6)
) -> Latencies:
    """Return clients with the same mean speed E[1/tau], half of them steady and half jittery.

    tau = exp(mu + sigma N(0, 1)) with E[1/tau] = exp(-mu + sigma^2 / 2) = 1 / mean_s.
    """
    validation.positive("mean_s", mean_s)
    steady, jittery = validation.span("sigmas", sigmas)
    validation.between("sigmas", steady, 0.0, MAX_SIGMA)
    validation.between("sigmas", jittery, 0.0, MAX_SIGMA)
    sigma = np.where(_share(n_clients, 0.5, rng), jittery, steady)
    return lognormal(mean_s * np.exp(sigma**2 / 2), sigma)


def _share(n_clients: int, share: float, rng: Rng) -> BoolArray:
    """Return True for a random share of the clients, rounded to whole clients."""
    return rng.permutation(n_clients) < round(share * n_clients)


# --- phones, and recorded clients ----------------------------------------------------------------

# Quantiles of 20,000 phones in FedScale's device data: milliseconds per sample at inference, and
# the natural logarithm of the bandwidth in kbit/s. The two are uncorrelated there and here.
LEVELS = (
    *(0.0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99, 1.0),
)
COMPUTE_MS = (
    *(15, 15, 19, 21, 23, 23, 24, 25, 27, 28, 31, 41),
    *(50, 64, 118, 140, 148, 154, 159, 175, 189, 193, 199),
)
LOG_KBPS = (
    *(6.92, 6.98, 7.28, 7.51, 7.62, 7.74, 7.96, 8.19, 8.35, 8.48, 8.56, 8.72),
    *(8.87, 9.05, 9.19, 9.38, 9.56, 9.89, 10.2, 10.39, 10.85, 11.51, 12.23),
)

TRAINING_OVER_INFERENCE = 3.0
"""One training step costs about three forward passes."""

LATENCY = ("latency_s",)
CAPACITY = ("compute_ms_per_sample", "bandwidth_kbps")
"""Columns of a trace after that of the client."""


def phones(
    n_clients: int, rng: Rng, *, samples: Sizes = 120, model_bytes: float = 1e6, jitter: float = 0.2
) -> Latencies:
    """Return phones with real computing power and bandwidth.

    Args:
        samples: Samples each one trains on in a round.
        model_bytes: Size of the model.
        jitter: Standard deviation of the logarithm of a phone's latency from round to round.
    """
    compute_ms, kbps = capacities(n_clients, rng)
    return phone_latencies(
        compute_ms, kbps, samples=samples, model_bytes=model_bytes, jitter=jitter
    )


def capacities(n_clients: int, rng: Rng) -> tuple[FloatArray, FloatArray]:
    """Return milliseconds per sample at inference and bandwidth in kbit/s of phones."""
    compute_ms = np.interp(rng.random(n_clients), LEVELS, COMPUTE_MS)
    return compute_ms, np.exp(np.interp(rng.random(n_clients), LEVELS, LOG_KBPS))


def phone_features(n_clients: int, rng: Rng, noise_rng: Rng, *, noise: float) -> FloatArray:
    """Return features of phones that a server may know before any response, [client, 2].

    The logarithms of computing time and bandwidth, each with normal noise of standard deviation
    `noise`: a data sheet, or a rough measurement. `rng` must be where `phones` drew from.
    """
    known = np.log(np.column_stack(capacities(n_clients, rng)))
    return np.asarray(known + noise * noise_rng.normal(size=known.shape))


def phone_latencies(
    compute_ms: FloatArray, kbps: FloatArray, *, samples: Sizes, model_bytes: float, jitter: float
) -> Noisy:
    """Return 3 n E / 1000 + 16 B / 1000 / kbps seconds, times lognormal jitter.

    E is the inference time per sample in ms; B bytes travel twice, 8 bits a byte.
    """
    if not isinstance(samples, np.ndarray):
        validation.positive("samples", samples)
    training = TRAINING_OVER_INFERENCE * samples * compute_ms / 1000.0
    transfer = 2 * 8 * validation.positive("model_bytes", model_bytes) / 1000.0 / kbps
    sigma = validation.between("jitter", jitter, 0.0, MAX_SIGMA)
    return lognormal(training + transfer, np.full(len(compute_ms), sigma))


def trace(
    n_clients: int,
    rng: Rng,
    *,
    path: str = "",
    samples: Sizes = 120,
    model_bytes: float = 1e6,
    jitter: float = 0.2,
    ids: Sequence[str] | None = None,
) -> Latencies:
    """Return n_clients of a trace, drawn at random; twice the same if it has fewer.

    They keep their names; a client that is there twice is "name", "name+2", and so on.

    Args:
        path: The CSV file.
        samples, model_bytes, jitter: As for phones; only for capacities.
        ids: Names of the clients, where the data has names; those in the file are the same
            clients.
    """
    columns, rows = read_trace(file_path(path))
    recorded, names = list(rows.values()), list(rows)
    devices = follow(names, n_clients, rng, ids)
    called = numbered(names[k] for k in devices) if ids is None else ids
    if columns == LATENCY:
        return Recorded([recorded[k][:, 0] for k in devices], called)
    compute_ms, kbps = np.array([recorded[k][0] for k in devices]).T
    drawn = phone_latencies(
        compute_ms, kbps, samples=samples, model_bytes=model_bytes, jitter=jitter
    )
    return replace(drawn, ids=called)


def read_trace(path: Path) -> tuple[tuple[str, ...], dict[str, FloatArray]]:
    """Return the columns of a trace and, for each client, its rows as an array.

    There are two layouts, distinguished by their header:

        client,latency_s                                any number of rows per client; resampled
        client,compute_ms_per_sample,bandwidth_kbps     one row per client; see phone_latencies

    A log of responses with other columns is read as by `bsfl advise`. A response that never came
    takes longer than any deadline.
    """
    columns: tuple[str, ...] = LATENCY
    rows: dict[str, list[list[float]]] = {}
    if has_responses(path):
        for row in read_csv(path, CsvFormat()).rows:
            seconds = row.latency_s if row.outcome == OK else LATENCY_RANGE[1]
            rows.setdefault(row.client, []).append([seconds])
    else:
        columns, lines = read_numbers(path, (LATENCY, CAPACITY), limits=LATENCY_RANGE)
        for line, client, numbers in lines:
            if columns == CAPACITY and client in rows:
                raise InvalidInput(
                    f"{path}, line {line}: client {quoted(client)!r} has more than one row"
                )
            rows.setdefault(client, []).append(numbers)
    return columns, {client: np.array(values) for client, values in rows.items()}


def numbered(names: Iterable[str]) -> list[str]:
    """Return names of which none is there twice.

    >>> numbered(["a", "b", "a", "a"])
    ['a', 'b', 'a+2', 'a+3']
    """
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}+{seen[name]}")
    return found


POPULATIONS: Registry[Callable[..., Latencies]] = Registry(
    "population",
    {
        "authors-bimodal": authors_bimodal,
        "authors-three-speeds": authors_three_speeds,
        "lognormal": lognormal_population,
        "shifted-exponential": exponential_population,
        "equal-means": equal_means,
        "phones": phones,
        "trace": trace,
    },
    group="bsfl.populations",
    given=("n_clients", "rng"),
)
"""Populations by name; a custom one is a function (n_clients, rng) that returns Latencies."""
