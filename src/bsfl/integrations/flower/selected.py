"""Selected: any Flower strategy, with its training clients chosen by a Scheduler."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import Result, Strategy

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.integrations.flower.app_source import has_query_handler
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.directory import Directory, Presence
from bsfl.integrations.flower.federation import Federation, Limits, RoundSummary
from bsfl.integrations.flower.grid import CohortGrid, TrainingGrid
from bsfl.integrations.flower.identity import Identity, check_identity
from bsfl.integrations.flower.replies import Latency, Stopwatch, check_latency
from bsfl.integrations.flower.wire import Wire
from bsfl.over_selection import Invite
from bsfl.requirements import LOSS, needs_of
from bsfl.rounds import SYSTEM, Clock, Rounds
from bsfl.scheduler import Scheduler

DIFFERENTIAL_PRIVACY = (
    strategies.DifferentialPrivacyClientSideAdaptiveClipping,
    strategies.DifferentialPrivacyClientSideFixedClipping,
    strategies.DifferentialPrivacyServerSideAdaptiveClipping,
    strategies.DifferentialPrivacyServerSideFixedClipping,
)
PRIVACY_REASON = (
    "differential privacy is accounted for on the assumption that clients are drawn at random and "
    "that their number is fixed; a selection that learns from the clients breaks both, and the "
    "promised epsilon would be wrong"
)

_LOG = logging.getLogger("flwr")


class Selected(Strategy):
    """A Flower strategy whose training clients are chosen by a Scheduler.

        strategy = Selected(FedAvg(), Scheduler(BSFL(alpha=10.0), cohort_size=25))
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=100)

    The wrapped strategy runs its own loop with its own settings, evaluation and aggregation. Only
    two things differ: the nodes it trains are those that the scheduler chose, and a round ends as
    the options below say. The scheduler is told of every client how long it took, that it was late,
    or that it failed.

    Attributes:
        scheduler: The scheduler in use; the restored one if state_path held one.
        rounds: A RoundSummary of every training round so far.
    """

    def __init__(
        self,
        strategy: Strategy,
        scheduler: Scheduler,
        *,
        identity: Identity = "auto",
        leave_after_s: float | None = 300.0,
        latency: Latency = "round-trip",
        deadline_s: float | None = None,
        quorum: int | None = None,
        invite: Invite | None = None,
        lifetime_s: float | None = None,
        min_clients: int | None = None,
        wait_s: float = 300.0,
        state_path: str | os.PathLike[str] | None = None,
        loss_key: str | None = None,
    ) -> None:
        """Wrap a strategy.

        Args:
            strategy: Any strategy of the Message API. How many nodes it would sample for training
                (fraction_train) no longer matters.
            scheduler: Chooses; its cohort_size is the number of clients that train in a round.
            identity: How a client is recognised: by a key of its node config, such as
                "partition-id", which a query handler of the ClientApp or the first training reply
                tells; by a function of Flower's NodeInfo; by its "node-id"; or "auto": the name
                that it was registered with, else its partition-id if told, else its node id.
            leave_after_s: Seconds after which a client that is not connected leaves the fleet; what
                was learned is kept for its return. None: never.
            latency: What the scheduler learns from: "round-trip" as the server measures it,
                "reported" by the client in the metric "duration-s", kept within what the server
                saw, or a function of the client, its reply and the round trip.
            deadline_s: Seconds after which a round ends without those who have not answered. None:
                the policy's tau_max if it has one, else no deadline but that of `start`.
            quorum: How many must have answered before the deadline ends a round. None: nobody must.
            invite: How many times cohort_size are invited, or "auto"; the first cohort_size answers
                are kept. None: the scheduler's own.
            lifetime_s: Seconds until a message expires. Until then a client that has not answered
                is busy and is not invited again. None: twice the deadline.
            min_clients: How many clients must be connected before a round starts. None: as many as
                the cohort, and as the strategy's min_available_nodes.
            wait_s: Seconds to wait for them before NotEnoughClients is raised.
            state_path: File that keeps what the scheduler knows; written after every round and
                read here if it is there and the scheduler is new.
            loss_key: Metric in which clients report their loss, for policies that want it.
        """
        if not isinstance(scheduler, Scheduler):
            raise InvalidInput(f"scheduler must be a bsfl.Scheduler, got {scheduler!r}")
        check_strategy(strategy)
        check_needs(scheduler.policy, loss_key)
        if isinstance(strategy, Selected):
            raise InvalidInput("strategy is wrapped already; wrap it in Selected once")
        self.strategy = strategy
        m, min_nodes = scheduler.cohort_size, getattr(strategy, "min_available_nodes", 0)
        tau_max = getattr(scheduler.policy, "tau_max", None)
        self.limits = Limits(
            cohort_size=m,
            deadline_s=tau_max if deadline_s is None else deadline_s,
            quorum=0 if quorum is None else quorum,
            invite=scheduler.invite if invite is None else invite,
            lifetime_s=lifetime_s,
            min_clients=max(m, min_nodes) if min_clients is None else min_clients,
            min_free=min(max(getattr(strategy, "min_train_nodes", 1), 1), m),
            wait_s=wait_s,
        )
        self.state_path = None if state_path is None else Path(state_path)
        self.scheduler = _restored(scheduler, self.state_path)
        self.rounds: list[RoundSummary] = []
        self._check = ContentCheck(strategy)
        self._loss_key = loss_key
        self._identity, self._latency = check_identity(identity), check_latency(latency)
        if leave_after_s is not None:
            checks.at_least("leave_after_s", leave_after_s, 0.0)
        self._leave_after_s = leave_after_s
        self._clock: Clock = SYSTEM
        self._run: Federation | None = None
        self._is_running = False
        self._is_unsaved = False
        self._server_round = 0

    def start(self, grid: Grid, *args: Any, **kwargs: Any) -> Result:
        """Run the wrapped strategy's own loop; takes what its `start` takes."""
        if (
            self._run is None or self._run.wire.grid is not grid
        ):  # else who is who, and busy, is known
            self._run = Federation(
                rounds=Rounds(self.scheduler, self.limits, clock=self._clock),
                limits=self.limits,
                wire=Wire(
                    grid=grid,
                    check=self._check,
                    stopwatch=Stopwatch(self._latency),
                    samples_key=getattr(self.strategy, "weighted_by_key", None),
                    loss_key=self._loss_key,
                    needs_loss=needs_of(self.scheduler.policy) >= LOSS,
                ),
                directory=Directory(
                    self._identity,
                    self._clock,
                    known=self.scheduler.clients,
                    is_answered=has_query_handler(),
                ),
                presence=Presence(self._leave_after_s, self._clock),
            )
        _LOG.info(
            "bsfl: up to %d clients a round, chosen by %s",
            self.limits.most_invited,
            self.scheduler.policy,
        )
        hooks = {"configure_train": self.configure_train, "aggregate_train": self.aggregate_train}
        self._is_running = True
        try:
            with _lent(self.strategy, hooks):
                return self.strategy.start(TrainingGrid(grid, self._exchange), *args, **kwargs)
        finally:
            self._is_running = False

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the round's clients and let the wrapped strategy write their messages."""
        strategy, nodes = self.strategy, self._started().choose()
        n = len(nodes)  # of which it shall sample all, if it samples
        wanted = {"fraction_train": 1.0, "min_train_nodes": n, "min_available_nodes": n}
        with _lent(strategy, {name: wanted[name] for name in wanted if hasattr(strategy, name)}):
            write, cohort = type(strategy).configure_train, CohortGrid(grid, nodes)
            messages = list(write(strategy, server_round, arrays, config, cohort))
        addressed = sorted(message.metadata.dst_node_id for message in messages)
        if addressed != sorted(nodes):
            raise InvalidInput(
                f"{type(strategy).__name__} must send one training message to each of the "
                f"{len(nodes)} nodes it is given, got {len(messages)} messages to "
                f"{len(set(addressed) & set(nodes))} of them"
            )
        self._server_round = server_round
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the wrapped strategy aggregate; add the round's numbers to its metrics."""
        arrays, metrics = self._aggregated(server_round, list(replies))
        return arrays, MetricRecord({**(metrics or {}), **self.rounds[-1].metrics()})

    def _aggregated(
        self, server_round: int, replies: list[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate; if that fails, try again without the replies that differ from most."""
        strategy = self.strategy
        aggregate = type(strategy).aggregate_train
        try:
            return aggregate(strategy, server_round, replies)
        except Exception as error:
            answers = {k: reply for k, reply in enumerate(replies) if reply.has_content()}
            odd = self._check.odd_ones(answers)
            if not odd:
                raise
            _LOG.warning(
                "bsfl: aggregation failed (%s); it is tried again without the replies of nodes %s, "
                "which differ from the others",
                error,
                ", ".join(str(replies[k].metadata.src_node_id) for k in odd),
            )
            return aggregate(
                strategy, server_round, [r for k, r in enumerate(replies) if k not in odd]
            )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        self.strategy.summary()

    def _exchange(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """Run one training round on the grid and keep what was learned."""
        replies, summary = self._started().exchange(self._server_round, messages, timeout)
        self._save()
        self.rounds.append(summary)
        _LOG.info(summary.line())
        return replies

    def _save(self) -> None:
        """Write the scheduler; a disk that is full costs what was learned, not the training."""
        if self.state_path is None:
            return
        try:
            self.scheduler.save(self.state_path)
        except OSError as error:
            if not self._is_unsaved:
                _LOG.warning(
                    "bsfl: %s cannot be written, training goes on: %s", self.state_path, error
                )
            self._is_unsaved = True
            return
        if self._is_unsaved:
            _LOG.warning("bsfl: %s is written again", self.state_path)
        self._is_unsaved = False

    def _started(self) -> Federation:
        """Return the run that `start` began; other loops know nothing of deadlines."""
        if self._run is None or not self._is_running:
            raise InvalidInput(
                "Selected must be the outermost strategy: call its own start() and wrap it in "
                f"nothing else, differential privacy included: {PRIVACY_REASON}"
            )
        return self._run


def check_strategy(strategy: Any) -> None:
    """Raise InvalidInput if a strategy cannot train the cohort it is given."""
    if not isinstance(strategy, Strategy):
        raise InvalidInput(
            "strategy must be a Flower strategy of the Message API (flwr.serverapp.strategy), "
            f"got {strategy!r}"
        )
    layer: Any = strategy
    while layer is not None:
        if isinstance(layer, DIFFERENTIAL_PRIVACY):
            raise InvalidInput(f"{type(layer).__name__} cannot be combined: {PRIVACY_REASON}")
        layer = getattr(layer, "strategy", None)
    if getattr(strategy, "fraction_train", 1.0) == 0.0:
        raise InvalidInput(
            f"fraction_train of {type(strategy).__name__} must not be 0: nobody would train"
        )


def check_needs(policy: Any, loss_key: str | None) -> None:
    """Raise InvalidInput if a policy needs losses and nobody says where clients report them."""
    if needs_of(policy) >= LOSS and loss_key is None:
        raise InvalidInput(
            f"{type(policy).__name__} needs the loss of every client that trains; name the metric "
            "in which clients report it, such as Selected(..., loss_key='train_loss')"
        )


@contextmanager
def _lent(strategy: Strategy, attributes: dict[str, Any]) -> Iterator[None]:
    """Give a strategy other attributes for a while."""
    mine = vars(strategy)
    before = {name: mine[name] for name in attributes if name in mine}
    mine.update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            del mine[name]
        mine.update(before)


def _restored(scheduler: Scheduler, path: Path | None) -> Scheduler:
    """Return what a file knows under the given settings; a scheduler that is not new stays."""
    if path is None:
        return scheduler
    if not path.parent.is_dir() or path.is_dir():
        raise InvalidInput(f"state_path must be a file in a folder that exists, got {str(path)!r}")
    if scheduler.t:
        return scheduler
    if len(scheduler.clients):
        raise InvalidInput(
            "a scheduler with a state_path must be new, as a file would replace it; register "
            "clients afterwards, with the scheduler of Selected"
        )
    if not path.exists():
        return scheduler
    restored = Scheduler.load(path, policy=scheduler.policy)
    restored.cohort_size = scheduler.cohort_size
    restored.abandon()
    _LOG.info("bsfl: %s goes on after round %d", path, restored.t)
    return restored
