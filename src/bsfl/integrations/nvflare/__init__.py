"""bsfl inside NVFlare: `ScheduledFedAvg` for FedAvg, `Scheduled` as a mixin for any workflow."""

from functools import cache
from typing import Any

from bsfl.errors import MissingExtra
from bsfl.integrations.nvflare.scheduled import Scheduled

__all__ = ["Scheduled", "ScheduledFedAvg"]  # the second is made on first access


def __getattr__(name: str) -> Any:
    """Make the class that needs NVFlare on access, by a program or by a job's configuration."""
    if name != "ScheduledFedAvg":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from nvflare.app_common.workflows.fedavg import (  # type: ignore[import-not-found,unused-ignore]
            FedAvg,
        )
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "nvflare":
            raise
        raise MissingExtra(
            "this needs nvflare, which is not installed; run: pip install nvflare"
        ) from None
    return _scheduled(FedAvg)


@cache
def _scheduled(workflow: Any) -> type:
    class ScheduledFedAvg(Scheduled, workflow):  # type: ignore[misc]  # NVFlare has no types
        """FedAvg; takes what NVFlare's own takes, and the options of `Scheduled`."""

        __module__ = __name__
        __qualname__ = "ScheduledFedAvg"

    return ScheduledFedAvg
