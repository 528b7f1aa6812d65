"""Phones: how long they take, from how fast they compute and how fast they send."""

import numpy as np

from bsfl import validation
from bsfl.simulation.latency import MAX_SIGMA, Latencies, Noisy, lognormal
from bsfl.types import FloatArray, Rng

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

Sizes = float | FloatArray
"""Samples that each client trains on: one number, or one for each."""


def phones(
    n_clients: int, rng: Rng, *, samples: Sizes = 120, model_bytes: float = 1e6, jitter: float = 0.2
) -> Latencies:
    """Return a fleet of phones with real computing power and bandwidth.

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
