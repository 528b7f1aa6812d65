"""Simulation on a virtual clock: an engine and simulated clients; three short loops.

A synchronous round waits for its cohort or its deadline, an over-selected one for the first
target_responses, and buffered rounds replace each client that ends by another one.
"""

import math
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

import numpy as np

from bsfl import validation
from bsfl._core.engine import Engine
from bsfl._core.events import CloseRound, Describe, OpenRound, Respond, SetAvailability
from bsfl.policy import Policy, check_policy
from bsfl.rounds import Buffer, BufferPlan
from bsfl.simulation.clients import SimulatedClients
from bsfl.simulation.false_reports import FalseReports
from bsfl.simulation.in_flight import InFlight, Invitation, report_of, round_duration
from bsfl.simulation.regret import Objective, RegretMeter
from bsfl.simulation.training import Responses, Training
from bsfl.types import OK, TIMEOUT, FloatArray, IntArray, RoundPlan, RoundRecord

POLL_S = 10.0
"""Seconds after which the server looks again when no client is available for a free place."""


def simulate(
    policy: Policy,
    fleet: SimulatedClients,
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
        policy: The selection rule.
        fleet: The simulated clients; the policy sees only which are available and their responses.
        cohort_size: m, how many responses a round needs.
        rounds: How many rounds to simulate at most.
        time_s: Virtual seconds after which no further round starts.
        seed: Root of the policy's own randomness; the clients have their own.
        plan: How rounds are closed. None: cohort_size clients are invited, and a round ends with
            the last of them or at the deadline of the clients.
        objective: What regret is measured in; None: regret is not computed.
        training: What the cohorts train; None: they only take their time.
    """
    check_policy(policy)
    validation.cohort_fits(cohort_size, fleet.n_clients)
    limits: dict[str, Any] = {"rounds": rounds, "time_s": time_s, "seed": seed}
    if isinstance(plan, BufferPlan):
        yield from _simulate_buffered(policy, fleet, plan, training=training, **limits)
    else:
        plan = plan or RoundPlan(
            target_responses=cohort_size,
            deadline_s=fleet.tau_max,
            lifetime_s=fleet.tau_max,
            late="drop",
        )
        meter = RegretMeter(objective, fleet) if objective else None
        yield from _simulate_rounds(policy, fleet, plan, meter=meter, training=training, **limits)


def engine_for(policy: Policy, fleet: SimulatedClients, plan: RoundPlan, **settings: Any) -> Engine:
    """Return an engine that knows what the server may know of simulated clients."""
    engine = Engine(policy, plan, n_clients=fleet.n_clients, **settings)
    known = {"samples": fleet.samples, "quality": fleet.quality, "features": fleet.features}
    attributes = {name: np.asarray(x, float) for name, x in known.items() if x is not None}
    if attributes:
        engine.run(Describe(clients=np.arange(fleet.n_clients), attributes=attributes))
    return engine


def set_available(engine: Engine, available: IntArray) -> None:
    """Let the engine select among these clients alone."""
    wanted = np.zeros(engine.n_clients, dtype=bool)
    wanted[available] = True
    changed = np.flatnonzero(wanted != engine.pool.online[: engine.n_clients])
    if len(changed):
        comes = wanted[changed]
        engine.run(SetAvailability(online=changed[comes], offline=changed[~comes]))


def _simulate_rounds(
    policy: Policy,
    fleet: SimulatedClients,
    plan: RoundPlan,
    *,
    rounds: int,
    time_s: float,
    seed: int,
    meter: RegretMeter | None,
    training: Training | None,
) -> Iterator[RoundRecord]:
    """Simulate synchronous and over-selected rounds."""
    engine = engine_for(policy, fleet, _without_lifetime(plan), seed=seed)
    in_flight, reported = InFlight(plan), FalseReports(fleet.malicious)
    t, clock_s = 0, 0.0
    while t < rounds and clock_s < time_s:
        t += 1
        set_available(engine, in_flight.leave_out(fleet.available(t, clock_s)))
        opened = engine.decide(OpenRound(online_s=fleet.online_s(clock_s)), clock_s)
        context = opened.context
        assert context
        regret = meter.regret(context, opened.cohort) if meter else None
        engine.apply(opened)
        cohort = opened.cohort
        latency_s = fleet.latencies(t, clock_s)[cohort]
        duration_s = round_duration(latency_s, plan)
        report, pending = report_of(cohort, latency_s, duration_s, plan)
        fresh = Responses(t, report, training.start() if training else None)
        came = [fresh, *in_flight.ended(clock_s + duration_s, t)]
        in_flight.add(cohort[pending], latency_s[pending], fresh, clock_s)
        clock_s += duration_s
        if training:
            came = training.round(came, engine.weights)
        engine.run(Respond(round=t, report=reported.of(came[0].report)), clock_s)
        engine.run(CloseRound(round=t), clock_s)
        for late in came[1:]:
            engine.run(Respond(round=late.round, report=reported.of(late.report)), clock_s)
        is_last = t == rounds or clock_s >= time_s
        yield RoundRecord(
            round=t,
            cohort=tuple(cohort.tolist()),
            kept=tuple(k for one in came for k in one.kept.tolist()),
            n_invited=opened.n_invited,
            target_responses=plan.target_responses,
            n_available=len(context.available),
            duration_s=duration_s,
            clock_s=clock_s,
            n_timeouts=int(np.count_nonzero(report.outcome == TIMEOUT)),
            regret=regret,
            train_loss=_mean(came[0].report.loss),
            **(training.evaluation(clock_s, last=is_last) if training else {}),
        )


def _simulate_buffered(
    policy: Policy,
    fleet: SimulatedClients,
    plan: BufferPlan,
    *,
    rounds: int,
    time_s: float,
    seed: int,
    training: Training | None,
) -> Iterator[RoundRecord]:
    """Simulate buffered rounds; a record is yielded whenever a buffer of responses was applied.

    The engine is asked for one client at a time among those that are not in flight; each of these
    selections is a round of its own. The simulated clients count versions of the model.
    """
    engine = engine_for(
        policy,
        fleet,
        RoundPlan(target_responses=1),
        seed=seed,
        max_open_rounds=plan.concurrency,
    )
    buffer: Buffer[Invitation] = Buffer(plan)
    in_flight: list[Invitation] = []
    busy = np.zeros(fleet.n_clients, dtype=bool)
    reported, n_idle, n_timeouts = FalseReports(fleet.malicious), 0, 0
    clock_s, applied_s = 0.0, 0.0
    while buffer.version < rounds and clock_s < time_s:
        version = buffer.version + 1
        while len(in_flight) < plan.concurrency:
            available = fleet.available(version, clock_s)
            idle = available[~busy[available]]
            n_idle = len(idle)
            if not n_idle:
                break
            set_available(engine, idle)
            opened = engine.run(OpenRound(online_s=fleet.online_s(clock_s)), clock_s)
            engine.run(Respond(round=opened.round, report={}), clock_s)
            (client,) = opened.cohort.tolist()
            latency_s = float(fleet.latencies(version, clock_s)[client])
            sent = Invitation(
                ends_s=clock_s + min(latency_s, plan.due_s),
                round=opened.round,
                client=client,
                latency_s=latency_s,
                version=buffer.version,
                base=training.start() if training else None,
            )
            heappush(in_flight, sent)
            busy[client] = True
        has_room = len(in_flight) < plan.concurrency
        if has_room and (not in_flight or in_flight[0].ends_s > clock_s + POLL_S):
            clock_s += POLL_S
        else:
            ended = heappop(in_flight)
            clock_s, busy[ended.client] = ended.ends_s, False
            result = Responses(ended.round, ended.report(plan.due_s), ended.base)
            if training:
                result, updates = training.train(result)
                ended.update = next(iter(updates), None)
            engine.run(Respond(round=ended.round, report=reported.of(result.report)), clock_s)
            engine.run(CloseRound(round=ended.round), clock_s)
            if result.report.outcome[0] == OK:
                buffer.add(ended, base=ended.version)
            else:
                n_timeouts += 1
        if not buffer.is_full and clock_s < time_s:
            continue
        batch = buffer.take()
        clients = [one.client for one, _ in batch]
        updates = [one.update for one, _ in batch if one.update]
        if training and updates:
            weights = engine.weights(np.array(clients))
            training.apply(
                updates,
                [one.base for one, _ in batch],
                [staleness for _, staleness in batch],
                None if weights is None else weights / len(clients),
            )
        is_last = buffer.version == rounds or clock_s >= time_s
        yield RoundRecord(
            round=buffer.version,
            cohort=tuple(clients),
            kept=tuple(clients),
            n_invited=plan.buffer,
            n_available=n_idle,
            duration_s=clock_s - applied_s,
            clock_s=clock_s,
            n_timeouts=n_timeouts,
            train_loss=float(np.mean([one.loss for one in updates])) if updates else None,
            **(training.evaluation(clock_s, last=is_last) if training else {}),
        )
        applied_s, n_timeouts = clock_s, 0


def _without_lifetime(plan: RoundPlan) -> RoundPlan:
    """Return the plan of the engine: which clients are in flight is simulated."""
    return RoundPlan(
        target_responses=plan.target_responses,
        over_selection=plan.over_selection,
        late=plan.late,
    )


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
