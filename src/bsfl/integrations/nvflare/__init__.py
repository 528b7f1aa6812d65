"""bsfl inside NVFlare: `ScheduledFedAvg` in place of FedAvg, or `Scheduled` before any workflow."""

from typing import TYPE_CHECKING, Any

from bsfl.errors import MissingExtra
from bsfl.integrations.nvflare.scheduled import Scheduled

if TYPE_CHECKING:
    from bsfl.integrations.nvflare.fedavg import ScheduledFedAvg

__all__ = ["Scheduled", "ScheduledFedAvg"]


def __getattr__(name: str) -> Any:
    """Import what needs NVFlare when it is asked for."""
    if name != "ScheduledFedAvg":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from bsfl.integrations.nvflare.fedavg import ScheduledFedAvg
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "nvflare":
            raise
        raise MissingExtra(
            "this needs nvflare, which is not installed; run: pip install nvflare"
        ) from None
    return ScheduledFedAvg
