"""Commands, which the engine decides on, and events, which hold what was decided.

An event has all that `Engine.apply` needs to change the state again without deciding anything: a
journal of events replays to the same state. A command that leaves nothing to decide is its own
event. Clients are dense indices, and `now_s` is time on the caller's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bsfl.policy import Selection
from bsfl.types import (
    NO_CLIENTS,
    BoolArray,
    FloatArray,
    IntArray,
    Observation,
    OverSelection,
    RoundContext,
    RoundReport,
)

Attributes = Mapping[str, FloatArray]
"""New values of samples, quality and features, for each of some clients."""


# --- commands that are decided on ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRound:
    """Select a cohort among the available clients.

    Attributes:
        target_responses, over_selection: For this round alone; None: those of the plan.
        deadline_s: For this round alone; None: that of the plan.
        online_s: For how many seconds each client has been online, by dense index.
    """

    target_responses: int | None = None
    over_selection: OverSelection | None = None
    deadline_s: float | None = None
    online_s: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond:
    """Report results of invitations to one round; an empty report only names the cohort."""

    round: int
    report: RoundReport | Mapping[int, Observation]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRound:
    """Close a round.

    Attributes:
        aggregated: Clients whose fresh responses entered the model; None: all of them.
        discard: Whether the round changes no model.
        is_automatic: Whether the round closes by itself, so that its credit may be replaced once.
    """

    round: int
    aggregated: IntArray | None = None
    discard: bool = False
    is_automatic: bool = False


# --- commands that are their own events -----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Add new clients, and bring back clients that left; all of them come online.

    Attributes:
        n_new: How many clients are new; they get the next dense indices.
        clients: Clients that are known already.
    """

    n_new: int = 0
    clients: IntArray = field(default_factory=lambda: NO_CLIENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """Set attributes of clients; the first features say how many there are."""

    clients: IntArray
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Take clients out; what was learned is kept for their return."""

    clients: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAvailability:
    """Change which clients can be selected."""

    online: IntArray = field(default_factory=lambda: NO_CLIENTS)
    offline: IntArray = field(default_factory=lambda: NO_CLIENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """Stop waiting for pending responses of clients."""

    clients: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Remove all clients that are not kept; the others move up."""

    kept: BoolArray


Command = (
    OpenRound | Respond | CloseRound | Join | Describe | Leave | SetAvailability | Abandon | Forget
)


# --- events of rounds ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOpened:
    """A cohort was selected; most numbers are those of a Round.

    Attributes:
        busy: Online clients that were left out because they are in flight.
        response_rate: Mean response rate of the cohort, from which the next search starts.
        selection, context: What the cohort was weighed by and selected in; None: not known.
    """

    round: int
    cohort: IntArray
    n_invited: int
    target_responses: int
    deadline_s: float | None
    is_timed: bool
    busy: IntArray
    response_rate: float
    selection: Selection | None
    context: RoundContext | None
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesReported:
    """Results of invitations to one round were reported."""

    round: int
    report: RoundReport
    is_late: bool
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundClosed:
    """A round closed, or its credit was replaced.

    Attributes:
        aggregated: Clients whose fresh responses entered the model.
        is_discarded: Whether the round changed no model.
        is_automatic: Whether its credit may still be replaced.
        duration_s: Duration by the caller's clock; None: it was not measured.
    """

    round: int
    aggregated: IntArray
    is_discarded: bool
    is_automatic: bool
    duration_s: float | None
    now_s: float


Event = (
    RoundOpened
    | ResponsesReported
    | RoundClosed
    | Join
    | Describe
    | Leave
    | SetAvailability
    | Abandon
    | Forget
)
