"""Selected: any Flower strategy, with training clients that a Scheduler selects."""

import logging
import os
from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedXgbCyclic, Result, Strategy

from bsfl.errors import InvalidInput
from bsfl.integrations.flower.checkpoint import Checkpoint, StateFile, files_of, start_from
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.federation import Federation, Limits
from bsfl.integrations.flower.grid import ExchangeGrid
from bsfl.integrations.flower.identity import Identity
from bsfl.integrations.flower.message_exchange import Latency
from bsfl.integrations.flower.nodes import Eligible
from bsfl.integrations.flower.options import Deadline, Options
from bsfl.integrations.flower.simulated import Simulated
from bsfl.integrations.flower.summary import Participation, RoundSummary, participation
from bsfl.integrations.flower.wrapper import (
    PRIVACY_REASON,
    Hook,
    StrategyWrapper,
    aggregate_replies,
    check_strategy,
    evaluates,
    evaluation_messages,
    patched,
    training_messages,
)
from bsfl.monitoring.publisher import JournalLike
from bsfl.rounds import SYSTEM, Clock
from bsfl.scheduler import Scheduler
from bsfl.types import ClientId, OverSelection

HOOKS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")

_LOG = logging.getLogger("flwr")


class Selected(StrategyWrapper):
    """A Flower strategy whose training clients are selected by a Scheduler.

        strategy = Selected(FedAvg(), Scheduler(BSFL(alpha=10.0), cohort_size=25))
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=100)

    The wrapped strategy runs its own loop with its own settings, evaluation and aggregation. Only
    two things differ: it trains the nodes that the scheduler selects, and a round ends as the
    options below say. For every client the latency, the timeout or the failure is reported to the
    scheduler. Attributes of the wrapped strategy are attributes of this one.

    Attributes:
        scheduler: The scheduler in use; the restored one if state_path held one.
        rounds: A RoundSummary of every training round so far.
    """

    scheduler: Scheduler
    rounds: list[RoundSummary]
    _options: Options
    _state: StateFile | None
    _checkpoint: Checkpoint | None
    _clock: Clock
    _run: Federation | None
    _inner: dict[str, Hook]
    _server_round: int
    _n_before: int
    _arrays: ArrayRecord | None

    def __init__(
        self,
        strategy: Strategy,
        scheduler: Scheduler,
        *,
        identity: Identity = "auto",
        leave_after_s: float | None = 300.0,
        eligible: Eligible | None = None,
        latency: Latency | Simulated = "round-trip",
        deadline_s: Deadline = None,
        evaluate_deadline_s: Deadline = None,
        min_responses: int | None = None,
        over_selection: OverSelection | None = None,
        lifetime_s: float | None = None,
        min_clients: int | None = None,
        wait_s: float = 300.0,
        state_path: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        loss_key: str | None = None,
        journal: JournalLike | None = None,
    ) -> None:
        """Wrap a strategy.

        Args:
            strategy: Any strategy of the Message API. How many nodes it would sample for training
                (fraction_train) no longer matters.
            scheduler: Selects the clients; its cohort_size is the number of replies that a round
                needs.
            identity: How a client is identified: by a key of its node config, such as
                "partition-id", which a query handler of the ClientApp or the first training reply
                reports; by a function of Flower's NodeInfo; by its "node-id"; or "auto": the name
                that it was registered with, else its partition-id if reported, else its node id.
            leave_after_s: Seconds after which a client that is not connected leaves; what was
                learned is kept for its return. None: never.
            eligible: Function of Flower's NodeInfo: whether a node may train and evaluate; called
                before every round. None: all may.
            latency: What the scheduler learns from: "round-trip" as the server measures it,
                "reported" by the client in the metric "duration-s" and clipped to the round trip,
                a function of the client, its reply and the round trip, or `simulated(...)`, in a
                simulation, with a virtual clock for all that is timed.
            deadline_s: Seconds after which a round ends without the missing replies, or a function
                of the round number. None: the policy's tau_max if it has one, else no deadline but
                that of `start`.
            evaluate_deadline_s: The same for the evaluation by clients. None: deadline_s.
            min_responses: Replies without which the deadline does not end a round. None: 0.
            over_selection: How many clients are invited per reply that a round needs, or "auto";
                the first cohort_size replies are kept. None: the scheduler's own.
            lifetime_s: Seconds until a message expires. Until then a client without a reply is busy
                and is not invited again. None: twice the deadline.
            min_clients: How many clients must be connected before a round starts. None: as many as
                the cohort, and as the strategy's min_available_nodes.
            wait_s: Seconds to wait for them before NotEnoughClients is raised.
            state_path: State file of the scheduler; written after every round, and read here if it
                exists and the scheduler is new.
            checkpoint: Folder for the model, the arrays of the strategy and the scheduler; written
                after every round. A server that is started again resumes from it.
            loss_key: Metric in which clients report their loss, for policies that need it.
            journal: A file, or a bsfl.monitoring.Journal, that gets every event of the scheduler as
                a line of JSON; `bsfl watch` shows it.
        """
        check_strategy(strategy)
        super().__init__(strategy)
        self._options = Options(
            identity=identity,
            leave_after_s=leave_after_s,
            eligible=eligible,
            latency=latency,
            deadline_s=deadline_s,
            evaluate_deadline_s=evaluate_deadline_s,
            min_responses=min_responses,
            over_selection=over_selection,
            lifetime_s=lifetime_s,
            min_clients=min_clients,
            wait_s=wait_s,
            loss_key=loss_key,
        )
        self._options.check(scheduler, strategy)
        _check_cyclic(strategy, self._options.limits(scheduler, strategy, 1))
        self._checkpoint, self._state = files_of(checkpoint, state_path)
        self.scheduler = scheduler if self._state is None else self._state.restored(scheduler)
        if journal is not None:
            self.scheduler.write_journal(journal)
        self.rounds = []
        self._clock = SYSTEM
        self._run = None
        self._inner = {}
        self._server_round = 0
        self._n_before = 0
        self._arrays = None

    @property
    def limits(self) -> Limits:
        """The numbers of the running round, or of the next one."""
        return self._options.limits(self.scheduler, self.strategy, max(self._server_round, 1))

    @property
    def participation(self) -> dict[ClientId, Participation]:
        """What each client that was ever invited has done so far."""
        return participation(self.rounds)

    def start(self, grid: Grid, *args: Any, **kwargs: Any) -> Result:
        """Run the wrapped strategy's own loop; takes what its `start` takes."""
        strategy = self.strategy
        if self._run is None or self._run.grid is not grid:  # else names and busy nodes are kept
            self._run = self._options.federation(grid, self.scheduler, strategy, self._clock)
        _LOG.info(
            "bsfl: up to %d clients a round, selected by %s%s",
            self.limits.max_invited,
            self.scheduler.policy,
            "" if self._state is None else f", saved in {self._state.path}",
        )
        self._inner = {name: getattr(strategy, name) for name in HOOKS}
        exchange_grid = ExchangeGrid(grid, train=self._train, evaluate=self._evaluate)
        saved = None if self._checkpoint is None else self._checkpoint.begin(strategy)
        self._n_before = 0 if saved is None else saved.server_round
        n_earlier = len(self.rounds)
        result: Result
        try:
            with patched(strategy, {name: getattr(self, name) for name in HOOKS}):
                result = start_from(strategy.start, saved, exchange_grid, *args, **kwargs)
        finally:
            self._inner = {}
        _add_metrics(result, self.rounds[n_earlier:])
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Select the round's clients and let the wrapped strategy write their messages."""
        server_round += self._n_before
        nodes = self._started().select(server_round)
        self._server_round, self._arrays = server_round, arrays
        configure = self._inner["configure_train"]
        if not nodes:  # lifetime_s of the scheduler may keep all clients in flight
            self._train([], None)
            return []
        return training_messages(
            self.strategy, configure, server_round, arrays, config, grid, nodes
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the wrapped strategy aggregate."""
        server_round += self._n_before
        arrays, metrics = self._aggregated("aggregate_train", server_round, replies)
        model = self._arrays if arrays is None else arrays
        if self._checkpoint is not None and model is not None:
            self._checkpoint.save(server_round, model, self.strategy)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the wrapped strategy sample among the nodes that are not busy."""
        if not evaluates(self.strategy):
            return []
        server_round += self._n_before
        nodes, configure = self._started().free(), self._inner["configure_evaluate"]
        return evaluation_messages(
            self.strategy, configure, server_round, arrays, config, grid, nodes
        )

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let the wrapped strategy aggregate."""
        metrics: MetricRecord | None
        metrics = self._aggregated("aggregate_evaluate", server_round + self._n_before, replies)
        return metrics

    def _aggregated(self, hook: str, server_round: int, replies: Iterable[Message]) -> Any:
        self._started()
        check = ContentCheck(self.strategy, hook)
        return aggregate_replies(self._inner[hook], check, server_round, list(replies))

    def _train(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """Run one training round on the grid and save the scheduler."""
        replies, summary = self._started().exchange(messages, timeout)
        if self._state is not None:
            self._state.save(self.scheduler)
        self.rounds.append(summary)
        _LOG.info(summary.line())
        return replies

    def _evaluate(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """Evaluate on clients until the deadline or the timeout, the sooner of the two."""
        deadline_s = self._options.evaluation_s(self.limits, self._server_round)
        waits = [seconds for seconds in (deadline_s, timeout) if seconds is not None]
        return self._started().evaluations.exchange(messages, min(waits, default=None))

    def _started(self) -> Federation:
        """Return the run of `start`; raise InvalidInput outside of it."""
        if self._run is None or not self._inner:
            raise InvalidInput(
                "Selected must be the outermost strategy: call its own start() and wrap it in "
                f"nothing else, differential privacy included: {PRIVACY_REASON}"
            )
        return self._run


def _add_metrics(result: Any, rounds: Iterable[RoundSummary]) -> None:
    """Add the summaries of rounds to a result, once Flower has logged it line by line."""
    if not isinstance(result, Result):  # of a custom start()
        return
    history = result.train_metrics_clientapp
    for summary in rounds:
        metrics: Any = history.get(summary.server_round, {})
        history[summary.server_round] = MetricRecord({**metrics, **summary.metrics()})


def _check_cyclic(strategy: Strategy, limits: Limits) -> None:
    """Raise InvalidInput if a strategy that trains one client at a time is given more."""
    if isinstance(strategy, FedXgbCyclic) and limits.max_invited > 1:
        raise InvalidInput(
            "FedXgbCyclic trains one client in a round: cohort_size must be 1 and over_selection "
            f"1.0, got {limits.target_responses} and {limits.over_selection}"
        )
