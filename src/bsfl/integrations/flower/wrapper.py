"""StrategyWrapper: a strategy that forwards what it does not define to another one."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import Strategy

from bsfl.errors import InvalidInput
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.grid import CohortGrid

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

Hook = Callable[..., Any]
"""A bound method of a strategy."""

_LOG = logging.getLogger("flwr")


class StrategyWrapper(Strategy):
    """A strategy that wraps another one.

    Attributes and methods of the wrapped strategy are read, called and set as if they were here, so
    that an app need not know that its strategy is wrapped. What a subclass declares is its own.

    Attributes:
        strategy: The wrapped strategy.
    """

    strategy: Strategy

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy

    if not TYPE_CHECKING:  # else every typing error would be an attribute of the wrapped strategy

        def __getattr__(self, name: str) -> Any:
            inner = vars(self).get("strategy")
            if inner is None or (name.startswith("__") and name.endswith("__")):
                raise AttributeError(name)
            try:
                return getattr(inner, name)
            except AttributeError:
                raise AttributeError(
                    f"neither {type(self).__name__} nor the {type(inner).__name__} in it has an "
                    f"attribute {name!r}"
                ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self) or _declares(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self.strategy, name, value)

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


def _declares(cls: type, name: str) -> bool:
    """Return whether a class, or one of its bases, has or annotates an attribute."""
    return hasattr(cls, name) or any(
        name in vars(base).get("__annotations__", {}) for base in cls.__mro__
    )


def check_strategy(strategy: Any) -> None:
    """Raise InvalidInput if a strategy cannot train the clients that it is given."""
    if not isinstance(strategy, Strategy):
        raise InvalidInput(
            "strategy must be a Flower strategy of the Message API (flwr.serverapp.strategy), "
            f"got {strategy!r}"
        )
    if isinstance(strategy, StrategyWrapper):
        raise InvalidInput(
            f"strategy is wrapped already; wrap it in {type(strategy).__name__} once"
        )
    layer: Any = strategy
    while layer is not None:
        if isinstance(layer, DIFFERENTIAL_PRIVACY):
            raise InvalidInput(f"{type(layer).__name__} cannot be combined: {PRIVACY_REASON}")
        layer = getattr(layer, "strategy", None)
    if getattr(strategy, "fraction_train", 1.0) == 0.0:
        raise InvalidInput(
            f"fraction_train of {type(strategy).__name__} must not be 0: no client would train"
        )


@contextmanager
def patched(strategy: Strategy, attributes: dict[str, Any]) -> Iterator[None]:
    """Replace attributes of a strategy for the time of a `with` block."""
    own = vars(strategy)
    before = {name: own[name] for name in attributes if name in own}
    own.update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            own.pop(name, None)
        own.update(before)


def training_messages(
    strategy: Strategy,
    configure: Hook,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
    nodes: list[int],
) -> list[Message]:
    """Return the messages with which a strategy trains all of some nodes."""
    n = len(nodes)  # a strategy that samples samples all of them
    settings = {"fraction_train": 1.0, "min_train_nodes": n, "min_available_nodes": n}
    with _with_settings(strategy, settings):
        messages = list(configure(server_round, arrays, config, CohortGrid(grid, nodes)))
    addressed = sorted(message.metadata.dst_node_id for message in messages)
    if addressed != sorted(nodes):
        n_reached = len(set(addressed) & set(nodes))
        raise InvalidInput(
            f"{type(strategy).__name__} must send one training message to each of the {n} nodes "
            f"it is given, got {len(messages)} messages to {n_reached} of them; if it trains that "
            f"many at a time, set cohort_size={max(n_reached, 1)}"
        )
    return messages


def evaluation_messages(
    strategy: Strategy,
    configure: Hook,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
    nodes: list[int],
) -> list[Message]:
    """Return the messages with which a strategy evaluates on some of these nodes."""
    if not nodes:
        _LOG.info("bsfl: no node is free to evaluate")
        return []
    minimums = ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes")
    settings = {name: min(getattr(strategy, name, 0), len(nodes)) for name in minimums}
    with _with_settings(strategy, settings):
        return list(configure(server_round, arrays, config, CohortGrid(grid, nodes)))


def evaluates(strategy: Strategy) -> bool:
    """Return whether a strategy has clients evaluate at all."""
    return getattr(strategy, "fraction_evaluate", 1.0) != 0.0


def aggregate_replies(
    aggregate: Hook, check: ContentCheck, server_round: int, replies: list[Message]
) -> Any:
    """Aggregate; if that fails, try again without the replies that differ from most others."""
    try:
        return aggregate(server_round, replies)
    except Exception as error:
        with_content = {k: reply for k, reply in enumerate(replies) if reply.has_content()}
        outliers = check.outliers(with_content)
        if not outliers:
            raise
        _LOG.warning(
            "bsfl: aggregation failed (%s); it is tried again without the replies of nodes %s, "
            "which differ from the others",
            error,
            ", ".join(str(replies[k].metadata.src_node_id) for k in outliers),
        )
        return aggregate(server_round, [r for k, r in enumerate(replies) if k not in outliers])


def _with_settings(strategy: Strategy, settings: dict[str, Any]) -> Any:
    """Return a context in which a strategy has these settings, as far as it has such."""
    return patched(
        strategy, {name: value for name, value in settings.items() if hasattr(strategy, name)}
    )
