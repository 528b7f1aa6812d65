"""What is believed of a client: each part owns its settings, its checks and its piece of state."""

from bsfl.estimation.averages import Averages, Queued, Selections, believed_latency
from bsfl.estimation.indices import INDICES, Evidence, Index, Lognormal, Means
from bsfl.estimation.memory import MEMORIES, ClientStats, Discounted, Lasting, Memory, Windowed
from bsfl.estimation.participation import AIMS, Aim, Floor, MaxGini
from bsfl.estimation.radii import RADII, Radius, hoeffding_radius

__all__ = [
    "AIMS",
    "INDICES",
    "MEMORIES",
    "RADII",
    "Aim",
    "Averages",
    "ClientStats",
    "Discounted",
    "Evidence",
    "Floor",
    "Index",
    "Lasting",
    "Lognormal",
    "MaxGini",
    "Means",
    "Memory",
    "Queued",
    "Radius",
    "Selections",
    "Windowed",
    "believed_latency",
    "hoeffding_radius",
]
