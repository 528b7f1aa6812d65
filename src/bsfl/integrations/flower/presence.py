"""Who has been away for so long that it has left."""

import math
from collections.abc import Collection

from bsfl.clients import ClientId
from bsfl.integrations.flower.identity import is_node_id
from bsfl.rounds import Clock


class Presence:
    """When each client was last there.

    Attributes:
        leave_after_s: Seconds after which a client that is not connected leaves; None: never.
    """

    def __init__(self, leave_after_s: float | None, clock: Clock) -> None:
        self.leave_after_s = math.inf if leave_after_s is None else leave_after_s
        self._clock = clock
        self._seen_at: dict[ClientId, float] = {}
        self._is_first = True

    def left(self, members: Collection[ClientId], present: Collection[ClientId]) -> list[ClientId]:
        """Return which members of the fleet have left, given who is present now.

        A node id of an earlier run that is not there when this one starts has left at once.
        """
        now = self._clock.monotonic()
        self._seen_at.update(dict.fromkeys(present, now))
        gone = []
        for client in members:
            away_s = now - self._seen_at.setdefault(client, now)
            is_ghost = self._is_first and client not in present and is_node_id(client)
            if away_s >= self.leave_after_s or (is_ghost and self.leave_after_s < math.inf):
                gone.append(client)
        for client in gone:
            self._seen_at.pop(client, None)
        self._is_first = False
        return gone
