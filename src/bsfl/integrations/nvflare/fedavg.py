"""NVFlare's FedAvg with its clients chosen by a scheduler."""

from nvflare.app_common.workflows.fedavg import (  # type: ignore[import-not-found,unused-ignore]
    FedAvg,
)

from bsfl.integrations.nvflare.scheduled import Scheduled


class ScheduledFedAvg(Scheduled, FedAvg):  # type: ignore[misc]  # NVFlare has no types
    """FedAvg; takes what NVFlare's own takes, and the options of `Scheduled`."""
