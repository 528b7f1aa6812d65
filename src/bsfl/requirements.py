"""What policies are told: numbers when made, sizes when clients register, losses in reports.

A policy that needs one of these and does not get it says so at once.
"""

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.records import OK, FloatArray, Report, RoundContext


def known_numbers(name: str, values: object) -> FloatArray:
    """Return one finite number above 0 for each client, as an array that cannot be written to."""
    numbers = checks.numbers(name, values)
    wrong = ~((numbers > 0) & np.isfinite(numbers))
    if wrong.any():
        raise InvalidInput(f"{name} must be finite and above 0, got {numbers[wrong][0]:g}")
    numbers.flags.writeable = False
    return numbers


def must_cover(name: str, values: FloatArray, n_clients: int) -> None:
    """Check that what was told when the policy was made holds for the whole fleet."""
    if n_clients > len(values):
        raise InvalidInput(f"{name} must cover the fleet of {n_clients} clients, got {len(values)}")


def registered_sizes(context: RoundContext) -> FloatArray:
    """Return n_k of every client as it was registered, 0 for one that left."""
    if context.roster is None:
        raise InvalidInput("this policy needs every client's samples; register them first")
    return context.roster.sizes


def require_losses(policy: str, report: Report) -> None:
    """Check that everyone who answered told a loss."""
    answered = report.outcome == OK
    n_missing = np.count_nonzero(answered & np.isnan(report.loss))
    if n_missing:
        raise InvalidInput(
            f"policy {policy!r} needs the loss of every client that answers, {n_missing} of "
            f"{np.count_nonzero(answered)} answers have none; report Observation(loss=...)"
        )


def keep_losses(loss: FloatArray, report: Report) -> None:
    """Store the losses of a report; who told none keeps the last one."""
    told = ~np.isnan(report.loss)
    loss[report.clients[told]] = report.loss[told]


def sample_counts(policy: str, report: Report, context: RoundContext) -> FloatArray:
    """Return n_k of the clients of a report: as reported, or else as registered."""
    counts = report.samples
    if context.roster is not None and context.roster.samples is not None:
        counts = np.where(np.isnan(counts), context.roster.samples[report.clients], counts)
    n_missing = np.count_nonzero((report.outcome == OK) & np.isnan(counts))
    if n_missing:
        raise InvalidInput(
            f"policy {policy!r} needs the sample count of every client that answers, {n_missing} "
            "have none; report Observation(samples=...) or register the clients' samples"
        )
    return counts
