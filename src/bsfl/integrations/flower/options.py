"""The options that everything on a grid has in common, and what is built of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flwr.serverapp import Grid

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.directory import Directory
from bsfl.integrations.flower.federation import Evaluations, Federation, Limits
from bsfl.integrations.flower.grid import VirtualGrid
from bsfl.integrations.flower.identity import Identity, check_identity
from bsfl.integrations.flower.nodes import Eligible, Nodes, Presence
from bsfl.integrations.flower.questions import has_query_handler
from bsfl.integrations.flower.simulated import Simulated
from bsfl.integrations.flower.wire import Latency, Stopwatch, Timer, Wire, check_latency
from bsfl.over_selection import Invite
from bsfl.requirements import LOSS, needs_of
from bsfl.rounds import Clock, Rounds
from bsfl.scheduler import Scheduler

Deadline = float | Callable[[int], float | None] | None
"""Seconds, a function of the round's number that returns them, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the docstring of `Selected` tells; None stands for what follows from the others."""

    identity: Identity = "auto"
    leave_after_s: float | None = 300.0
    eligible: Eligible | None = None
    latency: Latency | Simulated = "round-trip"
    deadline_s: Deadline = None
    evaluate_deadline_s: Deadline = None
    quorum: int | None = None
    invite: Invite | None = None
    lifetime_s: float | None = None
    min_clients: int | None = None
    wait_s: float = 300.0
    loss_key: str | None = None

    def __post_init__(self) -> None:
        check_identity(self.identity)
        if not isinstance(self.latency, Simulated):
            check_latency(self.latency)
        if self.leave_after_s is not None:
            checks.at_least("leave_after_s", self.leave_after_s, 0.0)
        if self.eligible is not None and not callable(self.eligible):
            raise InvalidInput(f"eligible must be a function of a node, got {self.eligible!r}")
        if isinstance(self.evaluate_deadline_s, int | float):
            checks.positive("evaluate_deadline_s", self.evaluate_deadline_s)

    def check(self, scheduler: Any, strategy: Any = None) -> None:
        """Raise InvalidInput if a scheduler cannot work with these options."""
        if not isinstance(scheduler, Scheduler):
            raise InvalidInput(f"scheduler must be a bsfl.Scheduler, got {scheduler!r}")
        if needs_of(scheduler.policy) >= LOSS and self.loss_key is None:
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
            cohort_size=m,
            deadline_s=deadline_s,
            quorum=0 if self.quorum is None else self.quorum,
            invite=scheduler.invite if self.invite is None else self.invite,
            lifetime_s=self.lifetime_s,
            min_clients=max(m, min_nodes) if self.min_clients is None else self.min_clients,
            min_free=min(max(getattr(strategy, "min_train_nodes", 1), 1), m),
            wait_s=self.wait_s,
        )

    def evaluation_s(self, limits: Limits, server_round: int) -> float | None:
        """Return after how many seconds an evaluation ends; None: the strategy's own timeout."""
        if self.evaluate_deadline_s is None:  # simulated seconds say nothing about an evaluation
            return None if isinstance(self.latency, Simulated) else limits.deadline_s
        return seconds_of("evaluate_deadline_s", self.evaluate_deadline_s, server_round)

    def federation(
        self, grid: Grid, scheduler: Scheduler, strategy: Any, clock: Clock
    ) -> Federation:
        """Return a run on a grid that has met nobody yet."""
        nodes = self.nodes(grid, scheduler, clock)
        wire, training_clock = self.wire(nodes, strategy)
        return Federation(
            rounds=Rounds(scheduler, self.limits(scheduler, strategy, 1), clock=training_clock),
            nodes=nodes,
            wire=wire,
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
            directory=Directory(
                self.identity, clock, known=scheduler.clients, is_answered=has_query_handler()
            ),
            presence=Presence(self.leave_after_s, clock),
            eligible=self.eligible,
        )

    def _timer(self, nodes: Nodes) -> Timer:
        if isinstance(self.latency, Simulated):
            client_of = nodes.directory.client_of
            return VirtualGrid(nodes.grid, self.latency, client_of, nodes.clock)
        return Stopwatch(self.latency)

    def wire(self, nodes: Nodes, strategy: Any) -> tuple[Wire, Clock]:
        """Return what carries training messages, and the clock on which training takes time."""
        grid, clock, timer = nodes.grid, nodes.clock, self._timer(nodes)
        if isinstance(timer, VirtualGrid):
            grid, clock = timer, timer.clock
        wire = Wire(
            grid=grid,
            check=ContentCheck(strategy),
            stopwatch=timer,
            samples_key=getattr(strategy, "weighted_by_key", None),
            loss_key=self.loss_key,
            needs_loss=needs_of(nodes.scheduler.policy) >= LOSS,
        )
        return wire, clock


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
        return checks.positive(name, seconds)
    except InvalidInput as error:
        raise InvalidInput(f"your function, for round {server_round}: {error}") from None
