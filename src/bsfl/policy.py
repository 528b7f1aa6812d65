"""The contract of a selection policy, and the small tools that most policies share.

A policy is a frozen record of its settings; what it learns is a separate state. In every round the
engine calls

    selection = policy.select(state, context, rng)      pure: the state does not change
    policy.observe(state, context, report)              once or several times, O(cohort)
    policy.close(state, context, closed)                when the round has closed

The first report of a round names the whole cohort in `report.invited`. Counts that belong to every
policy (invitations, participations, fair counts, response counts, latency moments) are not counted
again: they are read from `context.task` and `context.pool`. They include the report that is being
observed.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from bsfl import validation
from bsfl.errors import InvalidInput
from bsfl.types import (
    MAX_FEATURE,
    NO_CLIENTS,
    NO_NUMBERS,
    ClosedRound,
    FloatArray,
    IntArray,
    Rng,
    RoundContext,
    RoundReport,
    State,
)
from bsfl.validation import short

Needs = frozenset[str]
"""What clients must report, a set of the words below."""
NOTHING: Needs = frozenset()
LOSS: Needs = frozenset({"loss"})
"""Every response carries a loss."""
LOSSES_FROM_0: Needs = LOSS | {"losses from 0"}
"""Every response carries a loss that is not below 0."""
SAMPLES: Needs = frozenset({"samples"})
"""The size of every client's data is registered, or comes with its responses."""

Unit = Literal["s", "index", "value"]
"""What an objective counts: seconds (u = -seconds), points of a speed index, or value alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The policy of an experiment that selected a cohort, for the journal.

    Attributes:
        policy: Its name.
        which: Its place among the policies of the experiment, from 0.
        block: The number of the block of rounds, from 0.
        counts: Whether the round is compared.
    """

    policy: str
    which: int
    block: int
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A cohort S and the objective that it maximises, E(S) = min_S u + (alpha / m) sum_S g.

    Only `clients` is required; the rest lets `Scheduler.explain` say why.

    Attributes:
        clients: Dense indices of the cohort.
        reserved: Those that had a place before anything was weighed.
        candidates: Those that were weighed against each other for the m other places; none where
            there was no choice, or where the policy does not tell what it weighs.
        u, g, alpha: The problem that was solved for the candidates.
        unit: What E counts.
        is_exact: Whether the solver always finds the largest E.
        arm: The policy that selected, where several alternate.
    """

    clients: IntArray
    reserved: IntArray = field(default_factory=lambda: NO_CLIENTS)
    candidates: IntArray = field(default_factory=lambda: NO_CLIENTS)
    u: FloatArray = field(default_factory=lambda: NO_NUMBERS)
    g: FloatArray = field(default_factory=lambda: NO_NUMBERS)
    alpha: float = 0.0
    unit: Unit = "value"
    is_exact: bool = True
    arm: Arm | None = None


class Policy(ABC):
    """A selection rule. Subclasses are frozen dataclasses whose fields are the settings.

    >>> @dataclass(frozen=True)
    ... class FirstComers(Policy):
    ...     def select(self, state, context, rng):
    ...         return context.available[: context.n_invited]
    >>> from bsfl import Scheduler
    >>> list(Scheduler(FirstComers(), cohort_size=2).select(["ann", "bob", "cem"]))
    ['ann', 'bob']

    Attributes:
        needs: What clients must report: LOSS, SAMPLES or both; NOTHING.
        may_select_fewer: Whether a cohort may be smaller than n_invited though more are available.
        is_oracle: Whether the policy is given what only a simulator can know.
        supports_groups: Whether `select` respects bounds on groups of clients.
        state_keys: Names of the settings that give the numbers in a state their meaning; a saved
            state is only loaded with equal ones.
        search_space: Settings to try beside the defaults when policies are tuned.
        example: Settings for a small population, for the contract suite and the documentation.
    """

    __slots__ = ()

    needs: ClassVar[Needs] = NOTHING
    may_select_fewer: ClassVar[bool] = False
    is_oracle: ClassVar[bool] = False
    supports_groups: ClassVar[bool] = False
    state_keys: ClassVar[tuple[str, ...]] = ()
    search_space: ClassVar[tuple[dict[str, Any], ...]] = ()
    example: ClassVar[dict[str, Any]] = {}

    def init(self, n_clients: int) -> State:
        """Return the state before the first round; None: the policy learns nothing."""
        return None

    @abstractmethod
    def select(self, state: State, context: RoundContext, rng: Rng) -> IntArray | Selection:
        """Return the cohort: min(n_invited, available) distinct available clients.

        It must not change the state, and draw random numbers from `rng` alone.
        """

    def observe(self, state: State, context: RoundContext, report: RoundReport) -> None:
        """Learn from a report; costs O(cohort)."""
        return

    def close(self, state: State, context: RoundContext, closed: ClosedRound) -> None:
        """Learn from the end of a round, for policies that learn per round."""
        return

    def weights(self, state: State, context: RoundContext, clients: IntArray) -> FloatArray | None:
        """Return the weights of the clients' updates in the model; None: the trainer decides."""
        return None

    def diagnostics(self, state: State, context: RoundContext) -> dict[str, float]:
        """Return learned quantities by name, for summaries, journals and metrics."""
        return {}


class PolicyWrapper(Policy):
    """A policy that forwards everything to another one; subclasses override what they change."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    needs = property(lambda self: self.policy.needs)
    may_select_fewer = property(lambda self: self.policy.may_select_fewer)
    is_oracle = property(lambda self: self.policy.is_oracle)
    supports_groups = property(lambda self: self.policy.supports_groups)
    state_keys = property(lambda self: self.policy.state_keys)
    search_space = property(lambda self: self.policy.search_space)
    example = property(lambda self: self.policy.example)

    def init(self, n_clients: int) -> State:
        return self.policy.init(n_clients)

    def select(self, state: State, context: RoundContext, rng: Rng) -> IntArray | Selection:
        return self.policy.select(state, context, rng)

    def observe(self, state: State, context: RoundContext, report: RoundReport) -> None:
        self.policy.observe(state, context, report)

    def close(self, state: State, context: RoundContext, closed: ClosedRound) -> None:
        self.policy.close(state, context, closed)

    def weights(self, state: State, context: RoundContext, clients: IntArray) -> FloatArray | None:
        return self.policy.weights(state, context, clients)

    def diagnostics(self, state: State, context: RoundContext) -> dict[str, float]:
        return self.policy.diagnostics(state, context)


def check_policy(policy: object) -> None:
    """Check that something is a policy; a class or a name is not one yet."""
    if isinstance(policy, type):
        raise InvalidInput(
            f"policy must be an object, got the class {policy.__name__}; "
            f"did you mean {policy.__name__}()?"
        )
    if isinstance(policy, str):
        raise InvalidInput(
            f"policy must be an object such as Pace(), got {short(policy)}; "
            "bsfl.policies.make_policy makes one by its name"
        )
    if not isinstance(policy, Policy):
        raise InvalidInput(
            f"policy must be an object of a subclass of bsfl.Policy, got {short(policy)}"
        )


def check_forgettable(policy: object) -> None:
    """Check that no setting of a policy names clients by dense index, so that they may move."""
    while isinstance(policy, PolicyWrapper):
        policy = policy.policy
    settings = fields(policy) if is_dataclass(policy) and not isinstance(policy, type) else ()
    indexed = [one.name for one in settings if isinstance(getattr(policy, one.name), np.ndarray)]
    if indexed:
        raise InvalidInput(
            f"{type(policy).__name__} knows clients by their position ({', '.join(indexed)}), so "
            "none can be forgotten"
        )


def share_of(n: int, share: float) -> int:
    """Return floor(n share), robust to rounding errors just below a whole number.

    >>> share_of(10, 1.0 - 0.9), share_of(25, 0.9)
    (1, 22)
    """
    return math.floor(n * share + 1e-9)


def top_m(score: FloatArray, m: int, rng: Rng) -> IntArray:
    """Return the positions of the m largest scores, ties broken at random, sorted.

    >>> top_m(np.array([0.3, np.inf, 0.1, 0.9]), 2, np.random.default_rng(0))
    array([1, 3])
    """
    if m >= len(score):
        return np.arange(len(score))
    if m == 0:
        return np.arange(0)
    cut = np.partition(score, -m)[-m]
    above = np.flatnonzero(score > cut)
    tied = np.flatnonzero(score == cut)
    drawn = rng.choice(tied, m - len(above), replace=False, shuffle=False)
    return np.sort(np.concatenate([above, drawn]))


def weighted_draw(log_weight: FloatArray, m: int, rng: Rng) -> IntArray:
    r"""Return m distinct positions drawn one after another with weights exp(log_weight), sorted.

    The m largest of log w_k + G_k with independent standard Gumbel G_k are such a draw (Yellott
    1977), whatever the scale of the weights. A weight of 0 (log -inf) is drawn last.

    >>> weighted_draw(np.array([-np.inf, 0.0, 5000.0]), 2, np.random.default_rng(0))
    array([1, 2])
    """
    return top_m(log_weight + rng.gumbel(size=len(log_weight)), m, rng)


def freeze_arrays(policy: object, *names: str, optional: bool = True) -> None:
    """Turn settings with a finite number above 0 for each client into read-only arrays."""
    for name in names:
        if getattr(policy, name) is not None or not optional:
            numbers = validation.numbers(name, getattr(policy, name))
            validation.all_above_0(name, numbers, MAX_FEATURE)
            numbers.flags.writeable = False
            object.__setattr__(policy, name, numbers)  # policies are frozen


def check_covers(policy: object, n_clients: int, *names: str) -> None:
    """Check that settings by dense index hold a number for every client."""
    for name in names:
        known = getattr(policy, name)
        if known is not None and n_clients > len(known):
            raise InvalidInput(f"{name} must cover all {n_clients} clients, got {len(known)}")
