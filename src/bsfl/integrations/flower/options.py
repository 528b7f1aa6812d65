"""The options that Selected, Buffered and rounds share, and the objects that are built of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flwr.serverapp import Grid

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.federation import Evaluations, Federation, Limits
from bsfl.integrations.flower.grid import VirtualGrid
from bsfl.integrations.flower.identity import Identity, check_identity
from bsfl.integrations.flower.identity_queries import has_query_handler
from bsfl.integrations.flower.message_exchange import (
    Latency,
    MessageExchange,
    Stopwatch,
    Timer,
    check_latency,
)
from bsfl.integrations.flower.node_registry import NodeRegistry
from bsfl.integrations.flower.nodes import Eligible, Nodes, Presence
from bsfl.integrations.flower.simulated import Simulated
from bsfl.policy import LOSS
from bsfl.rounds import Clock, RoundManager
from bsfl.scheduler import Scheduler
from bsfl.types import OverSelection

Deadline = float | Callable[[int], float | None] | None
"""Seconds, a function of the round number that returns seconds, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that the docstring of `Selected` explains; None: derived from the others."""

    identity: Identity = "auto"
    leave_after_s: float | None = 300.0
    eligible: Eligible | None = None
    latency: Latency | Simulated = "round-trip"
    deadline_s: Deadline = None
    evaluate_deadline_s: Deadline = None
    min_responses: int | None = None
    over_selection: OverSelection | None = None
    lifetime_s: float | None = None
    min_clients: int | None = None
    wait_s: float = 300.0
    loss_key: str | None = None

    def __post_init__(self) -> None:
        check_identity(self.identity)
        if not isinstance(self.latency, Simulated):
            check_latency(self.latency)
        if self.leave_after_s is not None:
            validation.at_least("leave_after_s", self.leave_after_s, 0.0)
        if self.eligible is not None and not callable(self.eligible):
            raise InvalidInput(f"eligible must be a function of a node, got {self.eligible!r}")
        if isinstance(self.evaluate_deadline_s, int | float):
            validation.positive("evaluate_deadline_s", self.evaluate_deadline_s)

    def check(self, scheduler: Any, strategy: Any = None) -> None:
        """Raise InvalidInput if a scheduler cannot work with these options."""
        if not isinstance(scheduler, Scheduler):
            raise InvalidInput(f"scheduler must be a bsfl.Scheduler, got {scheduler!r}")
        if scheduler.policy.needs >= LOSS and self.loss_key is None:
            raise InvalidInput(
                f"{type(scheduler.policy).__name__} needs the loss of every client that trains; "
                "name the metric in which clients report it, such as "
                "Selected(..., loss_key='train_loss')"
            )
        self.limits(scheduler, strategy, 1)

    def limits(self, scheduler: Scheduler, strategy: Any, server_round: int) -> Limits:
        """Return the numbers of a round."""
        m, min_nodes = scheduler.cohort_size, getattr(strategy, "min_available_nodes", 0)
        deadline_s = seconds_of("deadline_s", self.deadline_s, server_round)
        if self.deadline_s is None:
            deadline_s = getattr(scheduler.policy, "tau_max", None)
        return Limits(
            target_responses=m,
            late="drop",
            deadline_s=deadline_s,
            min_responses=0 if self.min_responses is None else self.min_responses,
            over_selection=scheduler.over_selection
            if self.over_selection is None
            else self.over_selection,
            lifetime_s=self.lifetime_s,
            min_clients=max(m, min_nodes) if self.min_clients is None else self.min_clients,
            min_free=min(max(getattr(strategy, "min_train_nodes", 1), 1), m),
            wait_s=self.wait_s,
        )

    def evaluation_s(self, limits: Limits, server_round: int) -> float | None:
        """Return the deadline of an evaluation; None: the strategy's own timeout."""
        if self.evaluate_deadline_s is None:  # no evaluation is simulated
            return None if isinstance(self.latency, Simulated) else limits.deadline_s
        return seconds_of("evaluate_deadline_s", self.evaluate_deadline_s, server_round)

    def federation(
        self, grid: Grid, scheduler: Scheduler, strategy: Any, clock: Clock
    ) -> Federation:
        """Return a new run on a grid."""
        nodes = self.nodes(grid, scheduler, clock)
        messages, training_clock = self.exchange(nodes, strategy)
        return Federation(
            rounds=RoundManager(
                scheduler, self.limits(scheduler, strategy, 1), clock=training_clock
            ),
            nodes=nodes,
            messages=messages,
            evaluations=self.evaluations(grid, strategy, clock),
            plan=lambda server_round: self.limits(scheduler, strategy, server_round),
        )

    @staticmethod
    def evaluations(grid: Grid, strategy: Any, clock: Clock) -> Evaluations:
        check = ContentCheck(strategy, "aggregate_evaluate")
        return Evaluations(grid=grid, clock=clock, check=check)

    def nodes(self, grid: Grid, scheduler: Scheduler, clock: Clock) -> Nodes:
        return Nodes(
            grid=grid,
            scheduler=scheduler,
            clock=clock,
            registry=NodeRegistry(
                self.identity, clock, clients=scheduler.clients, is_handled=has_query_handler()
            ),
            presence=Presence(self.leave_after_s, clock),
            eligible=self.eligible,
        )

    def _timer(self, nodes: Nodes) -> Timer:
        if isinstance(self.latency, Simulated):
            client_of = nodes.registry.client_of
            return VirtualGrid(nodes.grid, self.latency, client_of, nodes.clock)
        return Stopwatch(self.latency)

    def exchange(self, nodes: Nodes, strategy: Any) -> tuple[MessageExchange, Clock]:
        """Return the exchange of training messages, and the clock on which training takes time."""
        grid, clock, timer = nodes.grid, nodes.clock, self._timer(nodes)
        if isinstance(timer, VirtualGrid):
            grid, clock = timer, timer.clock
        messages = MessageExchange(
            grid=grid,
            check=ContentCheck(strategy),
            timer=timer,
            samples_key=getattr(strategy, "weighted_by_key", None),
            loss_key=self.loss_key,
            needs_loss=nodes.scheduler.policy.needs >= LOSS,
        )
        return messages, clock


def seconds_of(name: str, deadline: Deadline, server_round: int) -> float | None:
    """Return the deadline of a round.

    >>> seconds_of("deadline_s", lambda server_round: 60.0 if server_round > 1 else None, 2)
    60.0
    """
    if not callable(deadline):
        return deadline
    seconds = deadline(server_round)
    if seconds is None:
        return None
    try:
        return validation.positive(name, seconds)
    except InvalidInput as error:
        raise InvalidInput(f"your function, for round {server_round}: {error}") from None
