"""Strategies that cannot be wrapped and policies that cannot be served, with the reason."""

from typing import Any

from flwr.serverapp import strategy as strategies

from bsfl.errors import InvalidInput
from bsfl.requirements import LOSS, needs_of

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


def check_strategy(strategy: Any) -> None:
    """Raise InvalidInput if a strategy cannot train the cohort it is given."""
    if not isinstance(strategy, strategies.Strategy):
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
