"""The main loop: a policy meets a fleet, round by round, on a virtual clock that never sleeps."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bsfl import checks
from bsfl.fleet import Fleet
from bsfl.learning.task import WEIGHTINGS, Evaluation, Params, Task, Weighting, shares
from bsfl.policies.base import Policy
from bsfl.randomness import stream
from bsfl.records import OK, TIMEOUT, FloatArray, IntArray, Report, RoundContext, RoundRecord
from bsfl.rounds import Round, RoundPlan
from bsfl.simulation.regret import Objective, RegretMeter


def simulate(
    policy: Policy,
    fleet: Fleet,
    *,
    cohort_size: int,
    rounds: int,
    time_s: float = math.inf,
    seed: int = 0,
    objective: Objective | None = None,
    training: "Training | None" = None,
) -> Iterator[RoundRecord]:
    """Yield a record of every round until the rounds or the virtual time are used up.

    Args:
        policy: Who chooses.
        fleet: The world; the policy sees only who is available and what the chosen show.
        cohort_size: m, how many to choose.
        rounds: How many rounds to play at most.
        time_s: Virtual seconds after which no further round starts.
        seed: Root of the policy's own randomness; the world has its own.
        objective: What regret is measured in; None: regret is not computed.
        training: What the cohorts train; None: they only take their time.
    """
    plan = RoundPlan(cohort_size=cohort_size, deadline_s=fleet.tau_max)
    checks.cohort_fits(cohort_size, fleet.n_clients)
    state = policy.init(fleet.n_clients)
    meter = RegretMeter(objective, fleet) if objective else None
    roster = fleet.roster
    t, clock_s = 0, 0.0
    while t < rounds and clock_s < time_s:
        t += 1
        available, online_s = fleet.available(t, clock_s), fleet.online_s(clock_s)
        context = RoundContext(
            t=t,
            available=available,
            cohort_size=cohort_size,
            roster=roster,
            online_s=None if online_s is None else online_s[available],
        )
        cohort = policy.select(state, context, stream(seed, "policy", t))
        outcome = run_round(cohort, fleet.latencies(t, clock_s), plan)
        clock_s += outcome.duration_s
        report = outcome.observations
        if training:
            report = training.train(report, t)
        policy.observe(state, context, report)
        last = t == rounds or clock_s >= time_s
        test = training.evaluate(clock_s, last=last) if training else None
        yield RoundRecord(
            t=t,
            cohort=tuple(cohort.tolist()),
            cohort_size=cohort_size,
            n_available=len(context.available),
            duration_s=outcome.duration_s,
            clock_s=clock_s,
            n_timeouts=outcome.n_timeouts,
            regret=meter.regret(cohort, context) if meter else None,
            train_loss=_mean(report.loss),
            test_loss=_or_infinite(test.loss) if test else None,
            test_accuracy=test.accuracy if test else None,
            worst_label_accuracy=test.worst_label_accuracy if test else None,
        )


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What the server sees of a round.

    Attributes:
        duration_s: When it was over.
        observations: What each member showed.
        n_timeouts: How many did not answer before that.
    """

    duration_s: float
    observations: Report
    n_timeouts: int


def run_round(cohort: IntArray, latencies: FloatArray, plan: RoundPlan) -> RoundOutcome:
    """Return the outcome of a cohort, given the latency of every client in this round.

    Nobody to ask: the round lasts until it closes, as waiting for somebody takes time, too.

    >>> plan = RoundPlan(cohort_size=2, deadline_s=3.0)
    >>> run_round(np.array([0, 2]), np.array([1.5, 9.0, 4.0]), plan).duration_s
    3.0
    """
    latency = latencies[cohort]
    running, now_s = Round(plan, cohort.tolist()), 0.0
    order = np.argsort(latency, kind="stable")
    for client, at_s in zip(cohort[order].tolist(), latency[order].tolist(), strict=True):
        if at_s > now_s:  # answers of one moment come together
            if running.is_over(now_s) or at_s > running.closes_at:
                break
            now_s = at_s
        running.hear(client, "ok", at_s)
    is_over = len(cohort) > 0 and running.is_over(now_s)
    duration_s = now_s if is_over else float(running.closes_at)
    unknown = np.full(len(cohort), np.nan)
    report = Report(
        clients=cohort,
        latency=np.minimum(latency, duration_s),
        outcome=np.where(latency > duration_s, TIMEOUT, OK).astype(np.int8),
        loss=unknown,
        samples=unknown,
        chosen=cohort,
    )
    return RoundOutcome(duration_s=duration_s, observations=report, n_timeouts=len(running.missing))


@dataclass(slots=True)
class Training:
    """The global model as it is trained.

    Attributes:
        task: What is trained.
        seed: Root of the training's randomness, the same for every policy.
        evaluate_every_s: Virtual seconds between two evaluations, the same for slow and for quick
            rounds; 0: after every round. The last round is always evaluated.
        weighting: "samples": the average weighs clients by their data; "equal": all the same.
        params: The global model; None before the first round.
        due_s: Virtual time of the next evaluation.
    """

    task: Task
    seed: int
    evaluate_every_s: float = 0.0
    weighting: Weighting = "samples"
    params: Params = None
    due_s: float = 0.0

    def __post_init__(self) -> None:
        checks.one_of("weighting", self.weighting, WEIGHTINGS)

    def train(self, report: Report, t: int) -> Report:
        """Let those who answered in time train; return the report with their losses and sizes."""
        if self.params is None:
            self.params = self.task.init(self.seed)
        in_time = report.outcome == OK
        updates = self.task.train(self.params, report.clients[in_time], t=t, seed=self.seed)
        loss, samples = report.loss.copy(), report.samples.copy()
        loss[in_time] = [update.loss for update in updates]
        samples[in_time] = [update.samples for update in updates]
        weights = shares(samples[in_time], self.weighting)
        self.params = self.task.aggregate(self.params, updates, weights)
        return replace(report, loss=loss, samples=samples)

    def evaluate(self, clock_s: float, *, last: bool) -> Evaluation | None:
        """Return how good the model is, if it is time for that."""
        if clock_s < self.due_s and not last:
            return None
        if step := self.evaluate_every_s:
            self.due_s = (clock_s // step + 1) * step
        return self.task.evaluate(self.params)


def _or_infinite(loss: float) -> float:
    """Return the loss of a model, infinite when it diverged."""
    return math.inf if math.isnan(loss) else loss


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
