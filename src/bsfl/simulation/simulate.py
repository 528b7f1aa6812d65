"""The main loop: a policy meets a fleet, round by round, on a virtual clock that never sleeps."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bsfl import checks
from bsfl.estimation.ledger import Ledger
from bsfl.fleet import Fleet
from bsfl.fleet.lies import Hearsay
from bsfl.over_selection import choose_enough
from bsfl.policies.base import Policy, check_policy_object, checked_cohort, weigher
from bsfl.randomness import stream
from bsfl.records import FloatArray, IntArray, RoundContext, RoundRecord
from bsfl.rounds import BufferPlan, RoundPlan
from bsfl.simulation.barrier import Stragglers, run_round
from bsfl.simulation.buffered import simulate_buffered
from bsfl.simulation.regret import Objective, RegretMeter
from bsfl.simulation.training import Answers, Training


def simulate(
    policy: Policy,
    fleet: Fleet,
    *,
    cohort_size: int,
    rounds: int,
    time_s: float = math.inf,
    seed: int = 0,
    plan: RoundPlan | BufferPlan | None = None,
    objective: Objective | None = None,
    training: Training | None = None,
) -> Iterator[RoundRecord]:
    """Yield a record of every round until the rounds or the virtual time are used up.

    Args:
        policy: Who chooses.
        fleet: The world; the policy sees only who is available and what the chosen show.
        cohort_size: m, how many answers a round wants.
        rounds: How many rounds to play at most.
        time_s: Virtual seconds after which no further round starts.
        seed: Root of the policy's own randomness; the world has its own.
        plan: How rounds are closed. None: cohort_size clients are invited, and a round ends with
            the last of them or at the fleet's deadline.
        objective: What regret is measured in; None: regret is not computed.
        training: What the cohorts train; None: they only take their time.
    """
    check_policy_object(policy)
    checks.cohort_fits(cohort_size, fleet.n_clients)
    if isinstance(plan, BufferPlan):
        yield from simulate_buffered(
            policy, fleet, plan, rounds=rounds, time_s=time_s, seed=seed, training=training
        )
        return
    plan = plan or RoundPlan(
        cohort_size=cohort_size, deadline_s=fleet.tau_max, lifetime_s=fleet.tau_max
    )
    state, roster = policy.init(fleet.n_clients), fleet.roster
    meter = RegretMeter(objective, fleet) if objective else None
    stragglers, ledger = Stragglers(plan), Ledger.of(fleet.n_clients)
    hearsay = Hearsay(fleet.lies)
    t, clock_s = 0, 0.0

    def choose(context: RoundContext) -> IntArray:
        cohort = policy.select(state, context, stream(seed, "policy", context.t))
        return checked_cohort(policy, context, cohort)

    while t < rounds and clock_s < time_s:
        t += 1
        available = stragglers.leave_out(fleet.available(t, clock_s))
        online_s = fleet.online_s(clock_s)
        context = RoundContext(
            t=t,
            available=available,
            cohort_size=plan.cohort_size,
            enough=plan.cohort_size,
            roster=roster,
            online_s=None if online_s is None else online_s[available],
            opportunity=ledger.opportunity,
        )
        context, cohort = choose_enough(choose, context, ledger, plan.invite)
        ledger.offer(available, plan.cohort_size)
        outcome = run_round(cohort, fleet.latencies(t, clock_s)[cohort], plan)
        answers = Answers(t, outcome.report, training.start() if training else None)
        came = [answers, *stragglers.ended(clock_s + outcome.duration_s, t)]
        stragglers.add(outcome, answers, clock_s)
        clock_s += outcome.duration_s
        if training:
            came = training.round(came, weigher(policy, state, context))
        regret = meter.regret(cohort, context) if meter else None
        for one in came:
            policy.observe(state, replace(context, t=one.t), hearsay.told(one.report))
            ledger.hear(one.report)
            if meter:
                meter.history.book(one.report)
        last = t == rounds or clock_s >= time_s
        yield RoundRecord(
            t=t,
            cohort=tuple(cohort.tolist()),
            kept=tuple(k for one in came for k in one.kept.tolist()),
            cohort_size=context.cohort_size,
            enough=plan.cohort_size,
            n_available=len(context.available),
            duration_s=outcome.duration_s,
            clock_s=clock_s,
            n_timeouts=outcome.n_timeouts,
            regret=regret,
            train_loss=_mean(came[0].report.loss),
            **(training.evaluation(clock_s, last=last) if training else {}),
        )


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
