"""Simulation on a virtual clock: an engine and simulated clients; two short loops.

A synchronous round waits for its cohort or its deadline, and an over-selected one for its
target_responses. In buffered rounds another client replaces each one that ends.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bsfl import validation
from bsfl._core.engine import Engine
from bsfl._core.events import (
    CloseRound,
    Describe,
    OpenRound,
    Respond,
    RoundOpened,
    SetAvailability,
)
from bsfl._core.task import TaskView
from bsfl.policy import Policy, check_policy
from bsfl.rounds import Buffer, BufferPlan
from bsfl.simulation.clients import FalseReports, SimulatedClients
from bsfl.simulation.in_flight import InFlight, Responses
from bsfl.simulation.regret import Objective, RegretMeter
from bsfl.simulation.training import Training
from bsfl.types import (
    NO_NUMBERS,
    TIMEOUT,
    FloatArray,
    IntArray,
    RoundContext,
    RoundPlan,
    RoundRecord,
)

POLL_S = 10.0
"""Seconds after which the server looks again when no client is available for a free place."""


def simulate(
    policy: Policy,
    clients: SimulatedClients,
    *,
    cohort_size: int,
    rounds: int,
    time_s: float = math.inf,
    seed: int = 0,
    plan: RoundPlan | BufferPlan | None = None,
    objective: Objective | None = None,
    training: Training | None = None,
    on_end: Callable[[TaskView], object] | None = None,
) -> Iterator[RoundRecord]:
    """Yield a record of every round until the rounds or the virtual time are used up.

    Args:
        policy: The selection rule.
        clients: The policy sees only which of them are available, and their responses.
        cohort_size: m, how many responses a round needs.
        rounds: How many rounds to simulate at most.
        time_s: Virtual seconds after which no further round starts.
        seed: Root of the policy's own randomness; the clients have their own.
        plan: How rounds are closed. None: cohort_size clients are invited, and a round ends with
            the last of them or at the deadline of the clients.
        objective: What regret is measured in; None: regret is not computed.
        training: What the cohorts train; None: they only take their time.
        on_end: Is called with the counts of every client after the last round.
    """
    check_policy(policy)
    validation.natural("rounds", rounds)
    validation.cohort_fits(cohort_size, clients.n_clients)
    if isinstance(plan, BufferPlan):
        one_each = RoundPlan(target_responses=1)
        server = Server(
            policy, clients, one_each, training, seed=seed, max_open_rounds=plan.concurrency
        )
        yield from _buffered_rounds(server, plan, rounds=rounds, time_s=time_s)
    else:
        deadline_s = clients.tau_max
        plan = plan or RoundPlan(
            target_responses=cohort_size, deadline_s=deadline_s, lifetime_s=deadline_s, late="drop"
        )
        untimed = RoundPlan(  # of the engine; when a client responds is simulated
            target_responses=plan.target_responses,
            over_selection=plan.over_selection,
            late=plan.late,
        )
        server = Server(policy, clients, untimed, training, seed=seed)
        meter = RegretMeter(objective, clients) if objective else None
        yield from _synchronous_rounds(server, plan, meter, rounds=rounds, time_s=time_s)
    if on_end:
        on_end(server.engine.views()[1])


def _synchronous_rounds(
    server: "Server", plan: RoundPlan, meter: RegretMeter | None, *, rounds: int, time_s: float
) -> Iterator[RoundRecord]:
    """Yield a record of every round; each ends before the next one starts."""
    training = server.training
    t, clock_s = 0, 0.0
    while t < rounds and clock_s < time_s:
        t += 1
        idle = server.idle(t, clock_s)
        opened, context = server.select_cohort(idle, clock_s)
        regret = meter.regret(context, opened.cohort) if meter else None
        server.send(opened, t)
        duration_s, came = server.in_flight.end_round(opened, plan)
        clock_s += duration_s
        if training:
            came = [training.train(responses) for responses in came]
            training.apply(came, server.engine.weights)
        fresh, *late = came
        server.receive(fresh, clock_s)
        server.engine.run(CloseRound(round=t), clock_s)
        for responses in late:
            server.receive(responses, clock_s)
        yield RoundRecord(
            round=t,
            cohort=tuple(opened.cohort.tolist()),
            kept=_kept(came),
            n_invited=opened.n_invited,
            target_responses=plan.target_responses,
            n_available=len(idle),
            duration_s=duration_s,
            clock_s=clock_s,
            n_timeouts=int(np.count_nonzero(fresh.report.outcome == TIMEOUT)),
            regret=regret,
            train_loss=_mean_loss([fresh]),
            **server.evaluation(clock_s, is_last=t == rounds or clock_s >= time_s),
        )


def _buffered_rounds(
    server: "Server", plan: BufferPlan, *, rounds: int, time_s: float
) -> Iterator[RoundRecord]:
    """Yield a record whenever a buffer of responses was applied to the model.

    The engine selects one client at a time; each of these selections is a round of its own. The
    buffer counts versions of the model.
    """
    training, in_flight = server.training, server.in_flight
    buffer: Buffer[Responses] = Buffer(plan)
    clock_s, applied_s, n_timeouts = 0.0, 0.0, 0
    while buffer.version < rounds and clock_s < time_s:
        n_idle = server.fill_places(plan.concurrency, buffer.version + 1, clock_s)
        next_s = in_flight.next_end_s(plan.due_s)
        if len(in_flight.rows) < plan.concurrency and next_s > clock_s + POLL_S:
            clock_s += POLL_S
        else:
            clock_s = next_s
            responses, version = in_flight.pop(plan.due_s)
            if training:
                responses = training.train(responses)
            server.receive(responses, clock_s)
            server.engine.run(CloseRound(round=responses.report.round), clock_s)
            if responses.report.usable.any():
                buffer.add(responses, base=version)
            else:
                n_timeouts += 1
        if not buffer.is_full and clock_s < time_s:
            continue
        came = [
            replace(responses, report=replace(responses.report, staleness=staleness))
            for responses, staleness in buffer.take()
        ]
        if training and came:
            training.apply(came, server.mean_weights)
        yield RoundRecord(
            round=buffer.version,
            cohort=_kept(came),
            kept=_kept(came),
            n_invited=plan.buffer,
            n_available=n_idle,
            duration_s=clock_s - applied_s,
            clock_s=clock_s,
            n_timeouts=n_timeouts,
            train_loss=_mean_loss(came),
            **server.evaluation(clock_s, is_last=buffer.version == rounds or clock_s >= time_s),
        )
        applied_s, n_timeouts = clock_s, 0


class Server:
    """The server of both loops: selects clients, sends them the model, receives their responses."""

    def __init__(
        self,
        policy: Policy,
        clients: SimulatedClients,
        plan: RoundPlan,
        training: Training | None = None,
        **settings: Any,
    ) -> None:
        self.engine = Engine(policy, plan, n_clients=clients.n_clients, **settings)
        self.clients, self.training = clients, training
        self.in_flight, self.reports = InFlight(), FalseReports(clients.malicious)
        names = "samples", "quality", "features"  # what a server may know of clients
        known = {name: getattr(clients, name) for name in names}
        attributes = {name: np.asarray(x, float) for name, x in known.items() if x is not None}
        if attributes:
            self.engine.run(Describe(clients=np.arange(clients.n_clients), attributes=attributes))

    def idle(self, t: int, clock_s: float) -> IntArray:
        """Return the clients that are available and not in flight."""
        return self.in_flight.idle(self.clients.available(t, clock_s))

    def select_cohort(self, idle: IntArray, clock_s: float) -> tuple[RoundOpened, RoundContext]:
        """Select a cohort among idle clients; no round is open before `send`."""
        engine, is_idle = self.engine, np.zeros(self.engine.n_clients, dtype=bool)
        is_idle[idle] = True
        changed = np.flatnonzero(is_idle != engine.pool.online[: engine.n_clients])
        if len(changed):
            comes = is_idle[changed]
            engine.run(SetAvailability(online=changed[comes], offline=changed[~comes]))
        opened = engine.decide(OpenRound(online_s=self.clients.online_s(clock_s)), clock_s)
        assert opened.context
        return opened, opened.context

    def send(self, opened: RoundOpened, t: int) -> None:
        """Send the model of round t to the cohort that was selected."""
        self.engine.apply(opened)
        latency_s = self.clients.latencies(t, opened.now_s)[opened.cohort]
        model = self.training.start() if self.training else None
        self.in_flight.add(opened, latency_s, t - 1, model)

    def fill_places(self, concurrency: int, t: int, clock_s: float) -> int:
        """Send the model to one idle client after another; return how many were idle."""
        n_idle = 0
        while len(self.in_flight.rows) < concurrency:
            idle = self.idle(t, clock_s)
            n_idle = len(idle)
            if not n_idle:
                break
            opened, _ = self.select_cohort(idle, clock_s)
            self.send(opened, t)
            self.engine.run(Respond(round=opened.round, report={}), clock_s)  # names the cohort
        return n_idle

    def receive(self, responses: Responses, clock_s: float) -> None:
        """Report responses to the engine, as the clients do."""
        report = self.reports.of(responses.report)
        self.engine.run(Respond(round=report.round, report=report), clock_s)

    def mean_weights(self, clients: IntArray) -> FloatArray | None:
        """Return the policy's weights of clients that were each selected in a round of its own."""
        weights = self.engine.weights(clients)
        return None if weights is None else weights / len(clients)

    def evaluation(self, clock_s: float, *, is_last: bool) -> dict[str, Any]:
        """Return how good the model is, as fields of a record."""
        return self.training.evaluation(clock_s, last=is_last) if self.training else {}


def _kept(came: Sequence[Responses]) -> tuple[int, ...]:
    """Return the clients whose responses entered the model."""
    return tuple(k for one in came for k in one.report.clients[one.report.usable].tolist())


def _mean_loss(came: Sequence[Responses]) -> float | None:
    """Return the mean loss that clients reported; None if none did."""
    losses = np.concatenate([responses.report.loss for responses in came] or [NO_NUMBERS])
    known = losses[~np.isnan(losses)]
    return float(known.mean()) if len(known) else None
