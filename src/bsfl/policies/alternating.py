"""Alternate two policies in random blocks of rounds, to measure which one has shorter rounds."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bsfl import validation
from bsfl._core.registry import Registry, check_component, component
from bsfl._core.state import ROUNDS, ClientState, EmptyState, number
from bsfl.errors import InvalidInput
from bsfl.estimators.switchback import Block, first_or_second
from bsfl.policy import Arm, Needs, Policy, Selection
from bsfl.types import (
    ClosedRound,
    FloatArray,
    IntArray,
    Rng,
    RoundContext,
    RoundReport,
    State,
)

ARMS: Registry[type[Policy]] = Registry("policy", {})
"""The policies that can alternate; bsfl.policies adds them."""
N_RESULTS = 4
"""Numbers of a block in the state."""
MAX_BLOCKS = 10_000
"""Blocks whose results are kept, the latest ones."""


@dataclass(slots=True, kw_only=True)
class AlternatingState(ClientState):
    """The states of both policies, and the results of their blocks.

    Attributes:
        first, second: What each policy has learned.
        block, n_rounds, total_s, n_responses: The latest block, and its results so far.
        last_closed: The latest round that has closed.
        results: Number, rounds, seconds and responses of every earlier block.
    """

    first: State
    second: State
    results: FloatArray
    block: int = number(0, high=ROUNDS)
    n_rounds: int = number(0, high=ROUNDS)
    total_s: float = number(0.0, low=0.0)
    n_responses: int = number(0, low=0)
    last_closed: int = number(0, high=ROUNDS)

    def check(self) -> None:
        """Check that a row of results has four numbers."""
        if self.results.shape[1] != N_RESULTS:
            raise InvalidInput(f"results has rows of {self.results.shape[1]} numbers")

    def recount(self) -> None:
        """Count again what a policy counts over all clients, after some were forgotten."""
        for state in _states(self):
            if hasattr(state, "recount"):
                state.recount()


@dataclass(frozen=True, slots=True)
class Alternating(Policy):
    """Alternate two policies in random blocks of rounds; `Scheduler.effect` compares them.

    Both policies learn from every response; one of them selects. The order within each pair of
    blocks is random, so that trends, such as a model that grows, cancel.

    >>> from bsfl import Pace, Scheduler, UniformRandom
    >>> scheduler = Scheduler(Alternating(Pace(), UniformRandom(), block=5), cohort_size=2)
    >>> for _ in range(60):
    ...     cohort = scheduler.select(available=range(8))
    ...     rejected = scheduler.observe({client: 1.0 + client for client in cohort})
    >>> scheduler.effect().n_pairs
    6

    Attributes:
        first, second: The policies.
        block: Rounds in a block.
        washout: Rounds at the beginning of a block that are not compared, as clients of the other
            policy may still be in flight.
        seed: Root of the random order.
    """

    state_keys: ClassVar = ("first", "second", "block", "washout", "seed")
    example: ClassVar = {"first": {"kind": "pace"}, "second": {"kind": "random"}, "block": 2}

    first: Policy = component(ARMS, None)
    second: Policy = component(ARMS, None)
    _: KW_ONLY
    block: int = 10
    washout: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            check_component(name, getattr(self, name), Policy, ARMS)
        validation.natural("block", self.block)
        validation.natural("seed", self.seed, low=0)
        if validation.natural("washout", self.washout, low=0) >= self.block:
            raise InvalidInput(
                f"washout must be below the block of {self.block} rounds, got {self.washout}"
            )

    @property
    def arms(self) -> tuple[Policy, Policy]:
        """Both policies."""
        return self.first, self.second

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """What either policy needs."""
        return self.first.needs | self.second.needs

    may_select_fewer = property(lambda self: any(arm.may_select_fewer for arm in self.arms))
    is_oracle = property(lambda self: any(arm.is_oracle for arm in self.arms))
    supports_groups = property(lambda self: all(arm.supports_groups for arm in self.arms))

    def arm(self, t: int) -> int:
        """Return which policy, 0 or 1, selects in round t."""
        return first_or_second((t - 1) // self.block, self.seed)

    def init(self, n_clients: int) -> AlternatingState:
        states = [arm.init(n_clients) for arm in self.arms]
        first, second = (EmptyState() if state is None else state for state in states)
        return AlternatingState(first=first, second=second, results=np.zeros((0, N_RESULTS)))

    def select(self, state: AlternatingState, context: RoundContext, rng: Rng) -> Selection:
        block, place = divmod(context.round - 1, self.block)
        which = self.arm(context.round)
        policy = self.arms[which]
        made = policy.select(_states(state)[which], context, rng)
        selection = made if isinstance(made, Selection) else Selection(clients=made)
        counts = place >= self.washout
        arm = Arm(policy=repr(policy), which=which, block=block, counts=counts)
        return replace(selection, arm=arm)

    def observe(self, state: AlternatingState, context: RoundContext, report: RoundReport) -> None:
        for arm, known in zip(self.arms, _states(state), strict=True):
            arm.observe(known, context, report)
        if report.round <= state.last_closed and self._counts(state, report.round):
            state.n_responses += int(np.count_nonzero(report.usable))

    def close(self, state: AlternatingState, context: RoundContext, closed: ClosedRound) -> None:
        for arm, known in zip(self.arms, _states(state), strict=True):
            arm.close(known, context, closed)
        state.last_closed = max(state.last_closed, closed.round)
        block = (closed.round - 1) // self.block
        if block > state.block:
            state.results = np.vstack([state.results, _latest(state)])[-MAX_BLOCKS:]
            state.block, state.n_rounds, state.total_s, state.n_responses = block, 0, 0.0, 0
        if closed.duration_s is not None and self._counts(state, closed.round):
            state.n_rounds += 1
            state.total_s += closed.duration_s
            state.n_responses += len(closed.aggregated)

    def _counts(self, state: AlternatingState, t: int) -> bool:
        """Return whether round t is of the latest block, and not at its beginning."""
        block, place = divmod(t - 1, self.block)
        return block == state.block and place >= self.washout

    def blocks(self, state: AlternatingState) -> list[Block]:
        """Return the results of all blocks so far."""
        rows = np.vstack([state.results, _latest(state)]).tolist()
        return [
            Block(
                number=int(block),
                arm=first_or_second(int(block), self.seed),
                n_rounds=int(n_rounds),
                total_s=total_s,
                n_responses=int(n_responses),
            )
            for block, n_rounds, total_s, n_responses in rows
        ]

    def weights(
        self, state: AlternatingState, context: RoundContext, clients: IntArray
    ) -> FloatArray | None:
        which = self.arm(context.round)
        return self.arms[which].weights(_states(state)[which], context, clients)

    def diagnostics(self, state: AlternatingState, context: RoundContext) -> dict[str, float]:
        found: dict[str, Any] = {}
        for name, arm, known in zip(("first", "second"), self.arms, _states(state), strict=True):
            learned = arm.diagnostics(known, context)
            found |= {f"{name}_{key}": value for key, value in learned.items()}
        return found


def _states(state: AlternatingState) -> tuple[State, State]:
    return state.first, state.second


def _latest(state: AlternatingState) -> FloatArray:
    """Return the results of the latest block as a row."""
    return np.array([[state.block, state.n_rounds, state.total_s, state.n_responses]])
