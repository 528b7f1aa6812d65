"""The main loop: a policy meets a fleet, round by round."""

from collections.abc import Iterator

import numpy as np

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.fleet import Fleet
from bsfl.policies.base import Policy
from bsfl.randomness import stream
from bsfl.records import RoundContext, RoundRecord
from bsfl.simulation.clock import run_round
from bsfl.simulation.regret import Objective, Yardstick


def simulate(
    policy: Policy,
    fleet: Fleet,
    *,
    cohort_size: int,
    rounds: int,
    seed: int = 0,
    objective: Objective | None = None,
) -> Iterator[RoundRecord]:
    """Yield a record of every round.

    Args:
        policy: Who chooses.
        fleet: The world; the policy sees only who is available and what the chosen show.
        cohort_size: m, how many to choose.
        rounds: How many rounds to play.
        seed: Root of the policy's own randomness; the world has its own.
        objective: What regret is measured in; None: regret is not computed.
    """
    if checks.natural("cohort_size", cohort_size) > fleet.n_clients:
        raise InvalidInput(
            f"cohort_size must be between 1 and the {fleet.n_clients} clients of the fleet, "
            f"got {cohort_size}"
        )
    state = policy.init(fleet.n_clients)
    yardstick = Yardstick(objective, fleet) if objective else None
    roster = fleet.roster
    clock_s = 0.0
    for t in range(1, rounds + 1):
        context = RoundContext(
            t=t, available=fleet.available(t), cohort_size=cohort_size, roster=roster
        )
        cohort = policy.select(state, context, stream(seed, "policy", t))
        outcome = run_round(cohort, fleet.latencies(t), tau_max=fleet.tau_max)
        policy.observe(state, context, outcome.observations)
        clock_s += outcome.duration_s
        yield RoundRecord(
            t=t,
            cohort=tuple(cohort.tolist()),
            cohort_size=cohort_size,
            n_available=len(context.available),
            duration_s=outcome.duration_s,
            clock_s=clock_s,
            n_timeouts=outcome.n_timeouts,
            regret=yardstick.regret(cohort, context) if yardstick else np.nan,
        )
