"""Answers of clients, judged one by one: who says something impossible fails alone."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.records import FloatArray, IntArray, Observation, Report, Roster
from bsfl.requirements import Needs, judge
from bsfl.scheduling.clients import ClientId

Id = TypeVar("Id", bound=ClientId)
ByRound = dict[int, dict[int, Observation]]
"""What clients showed, by dense index, by the round that they were asked in."""


def judged(
    answers: Mapping[Id, float | Observation],
    owed: Callable[[Id], tuple[int, int]],
    needs: Needs,
    samples: FloatArray,
    *,
    strict: bool,
) -> tuple[ByRound, dict[Id, str]]:
    """Return answers by their rounds, and why some are not as they came.

    Args:
        answers: For each client its latency in seconds, or an Observation.
        owed: Returns the index of a client and the round that it owes an answer to, or raises.
        needs: What the policy needs of an answer.
        samples: How much data each client was registered with.
        strict: Raise for the first that is not fine. Else an impossible answer counts as failed,
            and one that nobody waits for is passed over.
    """
    by_round: ByRound = {}
    refused: dict[Id, str] = {}
    for client, answer in answers.items():
        try:
            index, t = owed(client)
            if index in by_round.get(t, ()):
                raise InvalidInput("the same client has answered above, by another name")
        except InvalidInput as error:
            if strict:
                raise
            refused[client] = f"passed over, for {error}"
            continue
        try:
            found = judge(needs, answer, samples[index])
        except InvalidInput as error:
            if strict:
                raise InvalidInput(f"client {checks.short(client)}: {error}") from None
            refused[client] = f"counts as failed, for {error}"
            waited = answer.latency if isinstance(answer, Observation) else None
            found = Observation(outcome="failed", latency=waited)
        by_round.setdefault(t, {})[index] = found
    return by_round, refused


def report_of(
    answered: Mapping[int, Observation],
    chosen: IntArray,
    roster: Roster | None,
    samples: FloatArray,
) -> Report:
    """Return the report of answers to a round.

    Args:
        answered: What clients showed.
        chosen: Whose selection it books.
        roster: The fleet as it was when the last cohort was chosen.
        samples: How much data each client is registered with now. It stands in for what neither
            an answer nor the roster tells: whoever was judged by it must find it.
    """
    report = Report.of(dict(sorted(answered.items())), chosen=chosen)
    then = None if roster is None else roster.samples
    unknown = np.isnan(report.samples)
    if then is not None:
        unknown &= np.isnan(then[report.clients])
    report.samples[unknown] = samples[report.clients[unknown]]
    return report
