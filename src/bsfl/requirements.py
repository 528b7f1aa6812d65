"""What a policy requires: sizes of the clients, losses in reports, numbers known beforehand.

A policy says what it needs with `needs`, so that a loop that cannot give it refuses the policy
before the first round; whatever is missing all the same is an error at once.
"""

import math

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.records import (
    LARGEST_FEATURE,
    OK,
    FloatArray,
    IntArray,
    Observation,
    Report,
    Roster,
    RoundContext,
)

Needs = frozenset[str]
"""What clients must tell, a set of the words below."""
NOTHING: Needs = frozenset()
LOSS: Needs = frozenset({"loss"})
"""Every answer carries a loss."""
LOSSES_FROM_0: Needs = LOSS | {"losses from 0"}
"""Every answer carries a loss that is not below 0."""
SAMPLES: Needs = frozenset({"samples"})
"""The size of every client's data is registered, or comes with its answers."""


def needs_of(policy: object) -> Needs:
    """Return what a policy needs; nothing if it does not say."""
    return frozenset(getattr(policy, "needs", NOTHING))


def keep_known(policy: object, *names: str, optional: bool = True) -> None:
    """Make arrays of settings that hold a finite number above 0 for each client."""
    for name in names:
        if getattr(policy, name) is not None or not optional:
            numbers = checks.numbers(name, getattr(policy, name))
            checks.all_above_0(name, numbers, LARGEST_FEATURE)
            numbers.flags.writeable = False
            object.__setattr__(policy, name, numbers)  # policies are frozen


def must_cover(policy: object, n_clients: int, *names: str) -> None:
    """Check that numbers given when the policy was made hold for the whole fleet."""
    for name in names:
        known = getattr(policy, name)
        if known is not None and n_clients > len(known):
            raise InvalidInput(
                f"{name} must cover the fleet of {n_clients} clients, got {len(known)}"
            )


def registered_sizes(context: RoundContext) -> FloatArray:
    """Return n_k of every client as it was registered, 0 for one that left."""
    return (context.roster or Roster(n_members=0)).sizes  # an error where there are none


def data_shares(context: RoundContext, clients: IntArray, n_known: int) -> FloatArray:
    """Return p_k = n_k / sum n of clients, 1 / K where no sizes are registered."""
    if context.roster is None or context.roster.samples is None:
        return np.full(len(clients), 1.0 / context.n_members(n_known))
    return context.roster.sizes[clients] / context.roster.total_size


def require_losses(policy: str, report: Report) -> None:
    """Check that everyone who answered reported a loss."""
    answered = report.outcome == OK
    n_missing = np.count_nonzero(answered & np.isnan(report.loss))
    if n_missing:
        raise InvalidInput(
            f"policy {policy!r} needs the loss of every client that answers, {n_missing} of "
            f"{np.count_nonzero(answered)} answers have none; report Observation(loss=...)"
        )


def require_positive_losses(policy: str, report: Report) -> None:
    """Check that no loss is below 0."""
    if np.any(report.loss < 0):
        worst = float(np.nanmin(report.loss))
        raise InvalidInput(f"policy {policy!r} needs losses of at least 0, got {worst!r}")


def judge(needs: Needs, answer: float | Observation, registered_samples: float) -> Observation:
    """Return what one client showed, after checking that it can be and has all that is needed.

    Args:
        needs: What the policy needs.
        answer: Seconds, or an observation.
        registered_samples: How much data the client was registered with, NaN if it was not.
    """
    if not isinstance(answer, Observation):
        answer = Observation(latency=answer)
    if answer.outcome == "ok" and needs:
        if needs >= LOSS and answer.loss is None:
            raise InvalidInput("the policy needs its loss, and it tells none")
        if needs >= LOSSES_FROM_0 and answer.loss is not None and answer.loss < 0:
            raise InvalidInput(f"the policy needs losses of at least 0, got {answer.loss!r}")
        if needs >= SAMPLES and answer.samples is None and math.isnan(registered_samples):
            raise InvalidInput("the policy needs its number of samples, and nobody tells it")
    return answer


def keep_losses(loss: FloatArray, report: Report) -> None:
    """Store the losses of a report; a client without one keeps its last."""
    known = ~np.isnan(report.loss)
    loss[report.clients[known]] = report.loss[known]


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
