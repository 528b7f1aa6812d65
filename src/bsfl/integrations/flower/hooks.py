"""A strategy's own methods, called with the nodes and the replies that it shall see."""

import logging
from collections.abc import Callable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from bsfl.errors import InvalidInput
from bsfl.integrations.flower.around import lent
from bsfl.integrations.flower.content import ContentCheck
from bsfl.integrations.flower.grid import CohortGrid

Hook = Callable[..., Any]
"""A bound method of a strategy."""

_LOG = logging.getLogger("flwr")


def training_messages(
    strategy: Strategy,
    configure: Hook,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
    nodes: list[int],
) -> list[Message]:
    """Return the messages that a strategy writes to train all of some nodes."""
    n = len(nodes)  # of which it shall sample all, if it samples
    wanted = {"fraction_train": 1.0, "min_train_nodes": n, "min_available_nodes": n}
    with _set(strategy, wanted):
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
    """Return the messages that a strategy writes to have some of these nodes evaluate."""
    if not nodes:
        _LOG.info("bsfl: nobody is free to evaluate")
        return []
    least = ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes")
    with _set(strategy, {name: min(getattr(strategy, name, 0), len(nodes)) for name in least}):
        return list(configure(server_round, arrays, config, CohortGrid(grid, nodes)))


def evaluates(strategy: Strategy) -> bool:
    """Return whether a strategy has clients evaluate at all."""
    return getattr(strategy, "fraction_evaluate", 1.0) != 0.0


def aggregated(
    aggregate: Hook, check: ContentCheck, server_round: int, replies: list[Message]
) -> Any:
    """Aggregate; if that fails, try again without the replies that differ from most."""
    try:
        return aggregate(server_round, replies)
    except Exception as error:
        answers = {k: reply for k, reply in enumerate(replies) if reply.has_content()}
        odd = check.odd_ones(answers)
        if not odd:
            raise
        _LOG.warning(
            "bsfl: aggregation failed (%s); it is tried again without the replies of nodes %s, "
            "which differ from the others",
            error,
            ", ".join(str(replies[k].metadata.src_node_id) for k in odd),
        )
        return aggregate(server_round, [r for k, r in enumerate(replies) if k not in odd])


def _set(strategy: Strategy, wanted: dict[str, Any]) -> Any:
    """Return a context in which a strategy has these settings, as far as it has such."""
    return lent(strategy, {name: it for name, it in wanted.items() if hasattr(strategy, name)})
