"""Buffered: asynchronous training with any strategy that averages models."""

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedXgbBagging, FedXgbCyclic, Result, Strategy

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.async_run import AsyncRun, Received, Update
from bsfl.integrations.flower.checkpoint import Checkpoint, StateFile, files_of
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.options import Options
from bsfl.integrations.flower.summary import Participation, VersionSummary, participation
from bsfl.integrations.flower.versions import Versions
from bsfl.integrations.flower.wrapper import (
    StrategyWrapper,
    aggregate_replies,
    check_strategy,
    evaluates,
    evaluation_messages,
    training_messages,
)
from bsfl.rounds import SYSTEM, Buffer, BufferPlan, Clock, Invitations
from bsfl.scheduler import Scheduler
from bsfl.types import ClientId

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

_LOG = logging.getLogger("flwr")


class Buffered(StrategyWrapper):
    """Buffered asynchronous training with any strategy that averages models.

        strategy = Buffered(FedAvg(), Scheduler(cohort_size=25), concurrency=25, buffer=10)
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=300)

    A fixed number of clients is in flight: each client that replies is replaced by another one that
    the scheduler selects, and no client waits for a straggler (FedBuff, Nguyen et al. 2022). After
    every `buffer` replies the wrapped strategy aggregates, as it would after a round. A reply to an
    old model is rebased first: w = w_now + (w_client - w_base). `num_rounds` counts the versions of
    the model.

    Attributes:
        scheduler: The scheduler in use; the restored one if state_path held one.
        rounds: A VersionSummary of every version so far.
    """

    scheduler: Scheduler
    rounds: list[VersionSummary]
    plan: BufferPlan
    _options: Options
    _state: StateFile | None
    _checkpoint: Checkpoint | None
    _clock: Clock
    _staleness: Callable[[int], float] | None
    _evaluate_every: int
    _configured: int
    _train_check: ContentCheck
    _evaluate_check: ContentCheck

    def __init__(
        self,
        strategy: Strategy,
        scheduler: Scheduler,
        *,
        concurrency: int | None = None,
        buffer: int | None = None,
        staleness: Callable[[int], float] | None = None,
        evaluate_every: int = 1,
        state_path: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        """Wrap a strategy.

        Args:
            strategy: Any strategy of the Message API that averages models and does not override
                `start`.
            scheduler: Selects one client at a time.
            concurrency: C, how many clients are in flight at any time. None: its cohort_size.
            buffer: B, how many replies make a new version. None: half of C, rounded up.
            staleness: Returns the weight of a reply to a model that is so many versions old, such
                as `bsfl.rounds.staleness_weight`. None: 1 for any.
            evaluate_every: After how many versions the model is evaluated, by clients and by
                evaluate_fn. Training continues while clients evaluate.
            state_path: State file of the scheduler, as for `Selected`.
            checkpoint: Folder for model and scheduler, as for `Selected`.
            options: identity, leave_after_s, eligible, latency, deadline_s, evaluate_deadline_s,
                lifetime_s, min_clients, wait_s and loss_key, as for `Selected`. At its deadline a
                client times out, and another one replaces it.
        """
        check_strategy(strategy)
        _check_averages(strategy)
        super().__init__(strategy)
        for name in ("min_responses", "over_selection"):
            if name in options:
                raise InvalidInput(f"{name} is for rounds, of which Buffered has none")
        self._options = Options(**options)
        self._options.check(scheduler, strategy)
        m = scheduler.cohort_size if concurrency is None else concurrency
        validation.natural("concurrency", m)
        self.plan = BufferPlan(concurrency=m, buffer=(m + 1) // 2 if buffer is None else buffer)
        self._staleness = staleness
        self._evaluate_every = validation.natural("evaluate_every", evaluate_every)
        self._checkpoint, self._state = files_of(checkpoint, state_path)
        self.scheduler = scheduler if self._state is None else self._state.restored(scheduler)
        self.rounds = []
        self._clock = SYSTEM
        self._configured = -1
        self._train_check = ContentCheck(strategy)
        self._evaluate_check = ContentCheck(strategy, "aggregate_evaluate")

    @property
    def participation(self) -> dict[ClientId, Participation]:
        """What each client has done in the versions so far."""
        return participation(self.rounds)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Train until the model has been changed num_rounds times; arguments are Flower's."""
        _LOG.info(
            "bsfl: %d clients in flight, %d replies a version, selected by %s%s",
            self.plan.concurrency,
            self.plan.buffer,
            self.scheduler.policy,
            "" if self._state is None else f", saved in {self._state.path}",
        )
        self.strategy.summary()
        saved = None if self._checkpoint is None else self._checkpoint.begin(self.strategy)
        versions, result = Versions(initial_arrays), Result()
        if saved is not None:
            versions = Versions(saved.arrays, saved.server_round)
        result.arrays = versions.arrays
        run = self._begin(grid, timeout, versions.number)
        if evaluate_fn is not None:
            metrics = evaluate_fn(versions.number, versions.arrays)
            result.evaluate_metrics_serverapp |= {versions.number: metrics} if metrics else {}
        if versions.number >= num_rounds:
            return result
        run.wait_for_clients(self._min_clients())
        run.received.began_at = run.clock.monotonic()

        def write(nodes: list[int]) -> list[Message]:
            config = ConfigRecord(dict(train_config or {}))
            return self._training_messages(versions, config, grid, nodes)

        try:
            while versions.number < num_rounds:
                train_metrics = self._next_version(run, versions, write)
                result.arrays = versions.arrays
                result.train_metrics_clientapp[versions.number] = train_metrics
                if versions.number % self._evaluate_every == 0:
                    config = ConfigRecord(dict(evaluate_config or {}))
                    self._evaluate(run, versions, config, write, evaluate_fn, result)
        finally:
            self.scheduler.abandon()  # replies to this run are not received any more
        return result

    def _begin(self, grid: Grid, timeout: float | None, version: int) -> AsyncRun:
        options, scheduler = self._options, self.scheduler
        nodes = options.nodes(grid, scheduler, self._clock)
        messages, clock = options.exchange(nodes, self.strategy)
        return AsyncRun(
            nodes=nodes,
            messages=messages,
            evaluations=options.evaluations(grid, self.strategy, self._clock),
            clock=clock,
            plan=self.plan,
            limits=options.limits(scheduler, self.strategy, 1),
            timeout_s=timeout,
            buffer=Buffer(self.plan, version),
            received=Received(began_at=clock.monotonic()),
            invitations=Invitations(clock),
        )

    def _min_clients(self) -> int:
        n = getattr(self.strategy, "min_available_nodes", 0)
        min_clients = self._options.min_clients
        return max(self.plan.concurrency, n) if min_clients is None else min_clients

    def _training_messages(
        self, versions: Versions, config: ConfigRecord, grid: Grid, nodes: list[int]
    ) -> list[Message]:
        """Return messages that train nodes on the current model."""
        configure, version = self.strategy.configure_train, versions.number + 1
        self._configured = versions.number
        return training_messages(
            self.strategy, configure, version, versions.arrays, config, grid, nodes
        )

    def _next_version(
        self, run: AsyncRun, versions: Versions, write: Callable[[list[int]], list[Message]]
    ) -> MetricRecord:
        """Collect updates and let the strategy make the next version of them."""
        run.limits = self._options.limits(self.scheduler, self.strategy, versions.number + 1)
        updates = [pair for pair in run.collect(write) if self._is_rebased(run, versions, *pair)]
        if self._train_check.weight_key is not None:
            replies = {k: update.reply for k, (update, _) in enumerate(updates)}
            outliers = self._train_check.outliers(replies)
            for k, fault in outliers.items():
                self._drop(run, updates[k][0].client, fault)
            updates = [pair for k, pair in enumerate(updates) if k not in outliers]
        if updates and self._configured != versions.number:  # strategies keep the model they sent
            write([updates[0][0].reply.metadata.src_node_id])
        version, errors = versions.number + 1, run.received.errors
        summary = run.summary(updates, version)
        arrays, metrics = aggregate_replies(
            self.strategy.aggregate_train,
            self._train_check,
            version,
            [*(update.reply for update, _ in updates), *errors],
        )
        versions.advance(arrays, run.versions_in_use)
        if self._state is not None:
            self._state.save(self.scheduler)
        if self._checkpoint is not None:
            self._checkpoint.save(version, versions.arrays, self.strategy)
        self.rounds.append(summary)
        _LOG.info("%s, version %d", summary.line(), version)
        return MetricRecord({**(metrics or {}), **summary.metrics()})

    def _is_rebased(self, run: AsyncRun, versions: Versions, update: Update, age: int) -> bool:
        """Rebase an update on the current version; return whether it can be used."""
        weight = 1.0 if self._staleness is None else self._staleness(age)
        try:
            content = versions.rebased(update.reply.content, update.base, weight)
        except InvalidInput as error:
            self._drop(run, update.client, str(error))
            return False
        update.reply.content = content
        return True

    @staticmethod
    def _drop(run: AsyncRun, client: ClientId, fault: str) -> None:
        _LOG.warning("bsfl: the reply of %r is not used: %s", client, fault)
        run.received.failed.append(client)
        run.received.reasons[client] = fault

    def _evaluate(
        self,
        run: AsyncRun,
        versions: Versions,
        config: ConfigRecord,
        write: Callable[[list[int]], list[Message]],
        evaluate_fn: EvaluateFn | None,
        result: Result,
    ) -> None:
        """Evaluate on free clients while the others train, then on the server."""
        strategy, version, arrays = self.strategy, versions.number, versions.arrays
        if evaluates(strategy):
            messages = evaluation_messages(
                strategy,
                strategy.configure_evaluate,
                version,
                arrays,
                config,
                run.nodes.grid,
                run.free(),
            )
            seconds = self._options.evaluation_s(run.limits, version) or run.timeout_s
            replies = run.evaluations.exchange(
                messages, seconds, meanwhile=lambda: run.refill(write)
            )
            aggregate = strategy.aggregate_evaluate
            metrics = aggregate_replies(aggregate, self._evaluate_check, version, replies)
            if metrics is not None:
                result.evaluate_metrics_clientapp[version] = metrics
        if evaluate_fn is not None and (metrics := evaluate_fn(version, arrays)) is not None:
            _LOG.info("bsfl: version %d: %s", version, metrics)
            result.evaluate_metrics_serverapp[version] = metrics

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        raise InvalidInput("Buffered has no rounds to configure: call its own start()")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        raise InvalidInput("Buffered has no rounds to aggregate: call its own start()")


def _check_averages(strategy: Strategy) -> None:
    """Raise InvalidInput if a strategy cannot aggregate replies to different models."""
    name = type(strategy).__name__
    if isinstance(strategy, FedXgbBagging | FedXgbCyclic):
        raise InvalidInput(f"{name} does not average models; use Selected")
    if type(strategy).start is not Strategy.start:
        raise InvalidInput(
            f"{name} overrides start(), which is a loop of rounds; use Selected, or a strategy "
            "that does not"
        )
