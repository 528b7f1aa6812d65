"""Buffered: asynchronous training with any strategy that averages models."""

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedXgbBagging, FedXgbCyclic, Result, Strategy

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.around import (
    StrategyAround,
    aggregated,
    check_strategy,
    evaluates,
    evaluation_messages,
    training_messages,
)
from bsfl.integrations.flower.async_run import Answer, AsyncRun, Heard
from bsfl.integrations.flower.checkpoint import Checkpoint, StateFile, kept_in
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.options import Options
from bsfl.integrations.flower.summary import Participation, VersionSummary, participation
from bsfl.integrations.flower.versions import Versions
from bsfl.rounds import SYSTEM, Buffer, BufferPlan, Clock, Invitations
from bsfl.scheduler import Scheduler
from bsfl.scheduling.clients import ClientId

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

_LOG = logging.getLogger("flwr")


class Buffered(StrategyAround):
    """A strategy without rounds: clients are always at work, every few answers make a new model.

        strategy = Buffered(FedAvg(), Scheduler(cohort_size=25), concurrency=25, buffer=10)
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=300)

    Whoever answers makes room for the next client that the scheduler chooses, and nobody waits for
    a straggler (FedBuff, Nguyen et al. 2022). Every `buffer` answers the wrapped strategy
    aggregates, as it would after a round. An answer to an old model is brought up to date first:
    w = w_now + (w_client - w_base). `num_rounds` counts the versions of the model.

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
    _shown: int
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
            strategy: Any strategy of the Message API that averages models and has no `start` of
                its own.
            scheduler: Chooses one client at a time.
            concurrency: C, how many clients are at work at any time. None: its cohort_size.
            buffer: B, how many answers make a new version. None: half of C, rounded up.
            staleness: How much an answer counts to a model that is so many versions old, such as
                `bsfl.rounds.staleness_weight`. None: as much as any.
            evaluate_every: After how many versions the model is evaluated, by clients and by
                evaluate_fn. Training goes on while clients evaluate.
            state_path: File that keeps what the scheduler knows, as for `Selected`.
            checkpoint: Folder that keeps model and scheduler, as for `Selected`.
            options: identity, leave_after_s, eligible, latency, deadline_s, evaluate_deadline_s,
                lifetime_s, min_clients, wait_s and loss_key, as for `Selected`. At its deadline a
                client is given up, and another one takes its place.
        """
        check_strategy(strategy)
        _check_averages(strategy)
        super().__init__(strategy)
        for name in ("quorum", "invite"):
            if name in options:
                raise InvalidInput(f"{name} is for rounds, of which Buffered has none")
        self._options = Options(**options)
        self._options.check(scheduler, strategy)
        m = scheduler.cohort_size if concurrency is None else concurrency
        checks.natural("concurrency", m)
        self.plan = BufferPlan(concurrency=m, buffer=(m + 1) // 2 if buffer is None else buffer)
        self._staleness = staleness
        self._evaluate_every = checks.natural("evaluate_every", evaluate_every)
        self._checkpoint, self._state = kept_in(checkpoint, state_path)
        self.scheduler = scheduler if self._state is None else self._state.restored(scheduler)
        self.rounds = []
        self._clock = SYSTEM
        self._shown = -1
        self._train_check = ContentCheck(strategy)
        self._evaluate_check = ContentCheck(strategy, "aggregate_evaluate")

    @property
    def participation(self) -> dict[ClientId, Participation]:
        """What each client has done so far, of all that were heard of."""
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
            "bsfl: %d clients at work, %d answers a version, chosen by %s%s",
            self.plan.concurrency,
            self.plan.buffer,
            self.scheduler.policy,
            "" if self._state is None else f", kept in {self._state.path}",
        )
        self.strategy.summary()
        saved = None if self._checkpoint is None else self._checkpoint.begin(self.strategy)
        versions, result = Versions(initial_arrays), Result()
        if saved is not None:
            versions = Versions(saved.arrays, saved.server_round)
        result.arrays = versions.arrays
        run = self._begin(grid, timeout, versions.number)
        if evaluate_fn is not None:
            found = evaluate_fn(versions.number, versions.arrays)
            result.evaluate_metrics_serverapp |= {versions.number: found} if found else {}
        if versions.number >= num_rounds:
            return result
        run.wait_for_clients(self._min_clients())
        run.heard.began_at = run.clock.monotonic()

        def write(nodes: list[int]) -> list[Message]:
            config = ConfigRecord(dict(train_config or {}))
            return self._written(versions, config, grid, nodes)

        while versions.number < num_rounds:
            metrics = self._next_version(run, versions, write)
            result.arrays = versions.arrays
            result.train_metrics_clientapp[versions.number] = metrics
            if versions.number % self._evaluate_every == 0:
                config = ConfigRecord(dict(evaluate_config or {}))
                self._evaluate(run, versions, config, write, evaluate_fn, result)
        self.scheduler.abandon()
        return result

    def _begin(self, grid: Grid, timeout: float | None, version: int) -> AsyncRun:
        options, scheduler = self._options, self.scheduler
        nodes = options.nodes(grid, scheduler, self._clock)
        wire, clock = options.wire(nodes, self.strategy)
        return AsyncRun(
            nodes=nodes,
            wire=wire,
            evaluations=options.evaluations(grid, self.strategy, self._clock),
            clock=clock,
            plan=self.plan,
            limits=options.limits(scheduler, self.strategy, 1),
            timeout_s=timeout,
            buffer=Buffer(self.plan, version),
            heard=Heard(began_at=clock.monotonic()),
            invitations=Invitations(clock),
        )

    def _min_clients(self) -> int:
        n = getattr(self.strategy, "min_available_nodes", 0)
        given = self._options.min_clients
        return max(self.plan.concurrency, n) if given is None else given

    def _written(
        self, versions: Versions, config: ConfigRecord, grid: Grid, nodes: list[int]
    ) -> list[Message]:
        """Return messages that train nodes on the model as it is now."""
        configure, version = self.strategy.configure_train, versions.number + 1
        self._shown = versions.number
        return training_messages(
            self.strategy, configure, version, versions.arrays, config, grid, nodes
        )

    def _next_version(
        self, run: AsyncRun, versions: Versions, write: Callable[[list[int]], list[Message]]
    ) -> MetricRecord:
        """Collect answers and let the strategy make the next version of them."""
        run.limits = self._options.limits(self.scheduler, self.strategy, versions.number + 1)
        taken = [one for one in run.collect(write) if self._is_rebased(run, versions, *one)]
        if self._train_check.weight_key is not None:
            odd = self._train_check.odd_ones({k: one.reply for k, (one, _) in enumerate(taken)})
            for k, fault in odd.items():
                self._drop(run, taken[k][0].client, fault)
            taken = [one for k, one in enumerate(taken) if k not in odd]
        if taken and self._shown != versions.number:  # it compares with the model of its messages
            write([taken[0][0].reply.metadata.src_node_id])
        version, errors = versions.number + 1, run.heard.errors
        summary = run.summary(taken, version)
        arrays, metrics = aggregated(
            self.strategy.aggregate_train,
            self._train_check,
            version,
            [*(one.reply for one, _ in taken), *errors],
        )
        versions.advance(arrays, run.versions_in_use)
        if self._state is not None:
            self._state.save(self.scheduler)
        if self._checkpoint is not None:
            self._checkpoint.save(version, versions.arrays, self.strategy)
        self.rounds.append(summary)
        _LOG.info("%s, version %d", summary.line(), version)
        return MetricRecord({**(metrics or {}), **summary.metrics()})

    def _is_rebased(self, run: AsyncRun, versions: Versions, answer: Answer, age: int) -> bool:
        """Bring an answer up to date; return whether it can be used."""
        weight = 1.0 if self._staleness is None else self._staleness(age)
        try:
            content = versions.rebased(answer.reply.content, answer.base, weight)
        except InvalidInput as error:
            self._drop(run, answer.client, str(error))
            return False
        answer.reply.content = content
        return True

    @staticmethod
    def _drop(run: AsyncRun, client: ClientId, fault: str) -> None:
        _LOG.warning("bsfl: the answer of %r is not used: %s", client, fault)
        run.heard.failed.append(client)
        run.heard.reasons[client] = fault

    def _evaluate(
        self,
        run: AsyncRun,
        versions: Versions,
        config: ConfigRecord,
        write: Callable[[list[int]], list[Message]],
        evaluate_fn: EvaluateFn | None,
        result: Result,
    ) -> None:
        """Have clients that are not at work evaluate while the others train, then the server."""
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
            metrics = aggregated(aggregate, self._evaluate_check, version, replies)
            if metrics is not None:
                result.evaluate_metrics_clientapp[version] = metrics
        if evaluate_fn is not None and (found := evaluate_fn(version, arrays)) is not None:
            _LOG.info("bsfl: version %d: %s", version, found)
            result.evaluate_metrics_serverapp[version] = found

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        raise InvalidInput("Buffered has no rounds to configure: call its own start()")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        raise InvalidInput("Buffered has no rounds to aggregate: call its own start()")


def _check_averages(strategy: Strategy) -> None:
    """Raise InvalidInput if a strategy cannot aggregate answers to different models."""
    name = type(strategy).__name__
    if isinstance(strategy, FedXgbBagging | FedXgbCyclic):
        raise InvalidInput(f"{name} does not average models; use Selected")
    if type(strategy).start is not Strategy.start:
        raise InvalidInput(
            f"{name} has a start() of its own, which is a loop of rounds; use Selected, or a "
            "strategy without one"
        )
