"""Rounds without a barrier on the virtual clock: whoever ends makes room for the next one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

import numpy as np

from bsfl.estimation.ledger import Ledger
from bsfl.fleet import Fleet
from bsfl.fleet.lies import Hearsay
from bsfl.learning.task import Params, Update
from bsfl.policies.base import Policy, checked_cohort, weigher
from bsfl.randomness import stream
from bsfl.records import NOBODY, OK, TIMEOUT, IntArray, Report, RoundContext, RoundRecord
from bsfl.rounds import Buffer, BufferPlan
from bsfl.simulation.barrier import told
from bsfl.simulation.training import Answers, Training

POLL_S = 10.0
"""Seconds after which the server looks again when it finds nobody for a free place."""


@dataclass(order=True, slots=True)
class AtWork:
    """A client that is at work; the first to end comes first.

    Attributes:
        ends_s: When it answers, or is given up.
        t: The question that it was the answer to.
        latency: Seconds that it takes; infinite if it never answers.
        version, base: The model that it was sent.
    """

    ends_s: float
    t: int
    client: int = field(compare=False)
    latency: float = field(compare=False)
    version: int = field(compare=False)
    base: Params = field(compare=False)


def simulate_buffered(
    policy: Policy,
    fleet: Fleet,
    plan: BufferPlan,
    *,
    rounds: int,
    time_s: float = math.inf,
    seed: int = 0,
    training: Training | None = None,
) -> Iterator[RoundRecord]:
    """Yield a record whenever a buffer of answers was applied; the arguments are simulate's.

    The policy is asked for one client at a time among those that are not at work, and t counts
    these questions. The world's rounds are the versions of the model.
    """
    state, roster = policy.init(fleet.n_clients), fleet.roster
    buffer: Buffer[tuple[int, Update | None, Params]] = Buffer(plan)
    at_work: list[AtWork] = []
    busy = np.zeros(fleet.n_clients, dtype=bool)
    t, n_idle, n_timeouts = 0, 0, 0
    ledger, hearsay = Ledger.of(fleet.n_clients), Hearsay(fleet.lies)
    clock_s, applied_s = 0.0, 0.0

    def context(t: int, available: IntArray) -> RoundContext:
        return RoundContext(
            t=t, available=available, cohort_size=1, roster=roster, opportunity=ledger.opportunity
        )

    while buffer.version < rounds and clock_s < time_s:
        world_t = buffer.version + 1
        while len(at_work) < plan.concurrency:
            available = fleet.available(world_t, clock_s)
            idle = available[~busy[available]]
            n_idle = len(idle)
            if not n_idle:
                break
            t += 1
            online_s = fleet.online_s(clock_s)
            here = replace(context(t, idle), online_s=None if online_s is None else online_s[idle])
            cohort = policy.select(state, here, stream(seed, "policy", t))
            chosen = checked_cohort(policy, here, cohort)
            ledger.offer(idle, 1)
            policy.observe(state, here, Report.of({}, chosen=chosen))
            (client,) = chosen.tolist()
            latency = float(fleet.latencies(world_t, clock_s)[client])
            ends_s = clock_s + min(latency, plan.due_s)
            base = training.start() if training else None
            heappush(at_work, AtWork(ends_s, t, client, latency, buffer.version, base))
            busy[client] = True
        has_room = len(at_work) < plan.concurrency
        if has_room and (not at_work or at_work[0].ends_s > clock_s + POLL_S):
            clock_s += POLL_S
        else:
            ended = heappop(at_work)
            clock_s, busy[ended.client] = ended.ends_s, False
            report = told(
                np.array([ended.client]),
                np.array([min(ended.latency, plan.due_s)]),
                np.array([OK if ended.latency <= plan.due_s else TIMEOUT]),
                NOBODY,
            )
            update = None
            if training:
                answers, updates = training.train(Answers(ended.t, report, ended.base))
                report, update = answers.report, next(iter(updates), None)
            policy.observe(state, context(ended.t, NOBODY), hearsay.told(report))
            ledger.hear(report)
            if report.outcome[0] == OK:
                buffer.add((ended.client, update, ended.base), base=ended.version)
            else:
                n_timeouts += 1
        if not buffer.is_full and clock_s < time_s:
            continue
        batch = buffer.take()
        clients = [client for (client, _, _), _ in batch]
        updates = [update for (_, update, _), _ in batch if update]
        if training and updates:
            weigh = weigher(policy, state, context(t, NOBODY))
            training.apply(
                updates,
                [base for (_, _, base), _ in batch],
                [staleness for _, staleness in batch],
                weigh(np.array(clients)) / len(clients) if weigh else None,
            )
        last = buffer.version == rounds or clock_s >= time_s
        yield RoundRecord(
            t=buffer.version,
            cohort=tuple(clients),
            kept=tuple(clients),
            cohort_size=plan.buffer,
            n_available=n_idle,
            duration_s=clock_s - applied_s,
            clock_s=clock_s,
            n_timeouts=n_timeouts,
            train_loss=float(np.mean([one.loss for one in updates])) if updates else None,
            **(training.evaluation(clock_s, last=last) if training else {}),
        )
        applied_s, n_timeouts = clock_s, 0
