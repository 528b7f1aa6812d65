"""Drives a policy through rounds, to test it without a Scheduler."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from bsfl._core.engine import Engine
from bsfl._core.events import CloseRound, Describe, Respond, RoundOpened, SetAvailability
from bsfl._core.pool import PoolState
from bsfl._core.state import leaves
from bsfl._core.task import TaskState
from bsfl.policy import Policy, Selection
from bsfl.types import (
    NO_CLIENTS,
    IntArray,
    Observation,
    Rng,
    RoundContext,
    RoundPlan,
    State,
)

Responses = Mapping[int, float | Observation]
"""For each client its latency in seconds, or an Observation."""


def response(client: int) -> Observation:
    """Return a response with everything that a policy may need."""
    return Observation(latency_s=1.0 + client, loss=2.0 + client % 3, samples=9)


def contents(state: State) -> dict[str, bytes]:
    """Return every byte of a state, by the names of its arrays and numbers."""
    return {name: np.copy(leaf).tobytes() for name, leaf in leaves(state)}


class PolicyDriver:
    """A policy in an engine, which keeps the counts that policies read.

    The cohort of a round is the policy's, or one that the caller forces. Neither is validated, so
    that a faulty policy can be driven as well.

    >>> from bsfl import CsUcb
    >>> driver = PolicyDriver(CsUcb(tau_max=10.0), n_clients=3, target_responses=2)
    >>> driver.run_round({0: 2.0, 1: 5.0})
    1
    >>> driver.state.mean.tolist(), driver.task.invitations[:3].tolist()
    ([0.8, 0.5, 0.0], [1, 1, 0])
    >>> driver.select()
    array([0, 2])

    Attributes:
        policy: The selection rule.
        engine: The engine, for commands that the driver has no method for.
        target_responses: m, how many responses a round needs.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        n_clients: int,
        target_responses: int,
        late: Literal["apply", "drop"] = "drop",
        max_open_rounds: int = 1,
        samples: npt.ArrayLike | None = None,
        quality: npt.ArrayLike | None = None,
        features: npt.ArrayLike | None = None,
    ) -> None:
        """Start a training job.

        Args:
            policy: The selection rule.
            n_clients: How many clients there are.
            target_responses: m, how many responses a round needs.
            late: What becomes of responses to closed rounds.
            max_open_rounds: How many rounds may be open; rounds of one client are buffered then.
            samples, quality, features: Attributes, a row for each client; None: not registered.
        """
        plan = RoundPlan(target_responses=target_responses, late=late)
        self.policy, self.target_responses = policy, target_responses
        self.engine = Engine(policy, plan, n_clients=n_clients, max_open_rounds=max_open_rounds)
        given = {"samples": samples, "quality": quality, "features": features}
        attributes = {
            name: np.array(values, dtype=np.float64)
            for name, values in given.items()
            if values is not None
        }
        if attributes:
            self.engine.run(Describe(clients=np.arange(n_clients), attributes=attributes))

    @property
    def state(self) -> State:
        """What the policy has learned, with a row for each client."""
        self.engine._add_rows()
        return self.engine.policy_state

    @property
    def task(self) -> TaskState:
        """Counts of the training job, which a test may set."""
        return self.engine.task

    @property
    def pool(self) -> PoolState:
        """Membership, attributes and response counts, which a test may set."""
        return self.engine.pool

    @property
    def cohort(self) -> list[int]:
        """The clients that were invited to the latest round."""
        latest = self.engine.rounds.latest
        return [] if latest is None else latest.cohort.tolist()

    def set_available(self, clients: Iterable[int]) -> None:
        """Make these clients, and no others, available."""
        online = np.array(list(clients), dtype=np.int64)
        offline = np.setdiff1d(np.arange(self.engine.n_clients), online)
        self.engine.run(SetAvailability(online=online, offline=offline))

    def context(
        self,
        *,
        available: Iterable[int] | None = None,
        n_invited: int | None = None,
        target_responses: int | None = None,
    ) -> RoundContext:
        """Return the context of the next round.

        Args:
            available: Clients that can be selected; None: the clients that are online.
            n_invited: How many clients to select; None: as many as the target responses.
            target_responses: For this round alone; None: the driver's own.
        """
        self.engine._add_rows()
        opened = self._opened(NO_CLIENTS, available, n_invited, target_responses)
        assert opened.context
        return opened.context

    def select(
        self, context: RoundContext | None = None, rng: Rng | None = None, **numbers: Any
    ) -> IntArray:
        """Return the cohort that the policy selects; the state does not change.

        Args:
            context: The round; None: the next one, with `numbers` as in `context`.
            rng: None: a generator seeded by the number of the round.
        """
        made = self.selection(context, rng, **numbers)
        return made.clients if isinstance(made, Selection) else made

    def selection(
        self, context: RoundContext | None = None, rng: Rng | None = None, **numbers: Any
    ) -> IntArray | Selection:
        """Return what the policy returns: a cohort or a Selection; see `select`."""
        context = self.context(**numbers) if context is None else context
        rng = np.random.default_rng(context.round) if rng is None else rng
        return self.policy.select(self.state, context, rng)

    def open(
        self, cohort: Iterable[int] | None = None, rng: Rng | None = None, **numbers: Any
    ) -> int:
        """Open the next round and return its number.

        Args:
            cohort: The clients to invite; None: those that the policy selects.
            rng: As in `select`.
            numbers: As in `context`.
        """
        if cohort is None:
            cohort = self.select(rng=rng, **numbers)
        clients = np.unique(np.array(list(cohort), dtype=np.int64))
        opened = self._opened(
            clients,
            numbers.get("available"),
            numbers.get("n_invited"),
            numbers.get("target_responses"),
        )
        self.engine.apply(opened)
        return opened.round

    def respond(self, responses: Responses, round: int | None = None) -> None:  # noqa: A002
        """Report results of a round, the latest one if None; an empty report names the cohort."""
        observations = {
            int(k): seen if isinstance(seen, Observation) else Observation(latency_s=float(seen))
            for k, seen in responses.items()
        }
        number = self.task.round if round is None else round
        self.engine.run(Respond(round=number, report=observations))

    def close(self, round: int | None = None) -> None:  # noqa: A002
        """Close a round, the latest one if None."""
        self.engine.run(CloseRound(round=self.task.round if round is None else round))

    def run_round(
        self, responses: Responses, *, cohort: Iterable[int] | None = None, **numbers: Any
    ) -> int:
        """Open a round with a forced cohort, report responses, close it and return its number.

        Args:
            responses: Results of the round.
            cohort: The clients to invite; None: those that respond.
            numbers: As in `context`.
        """
        number = self.open(responses if cohort is None else cohort, **numbers)
        if responses:
            self.respond(responses)
        self.close()
        return number

    def run(self, n_rounds: int, **numbers: Any) -> Self:
        """Run rounds in which every selected client responds; `numbers` as in `context`."""
        for _ in range(n_rounds):
            self.open(**numbers)
            self.respond({k: response(k) for k in self.cohort})
            self.close()
        return self

    def _opened(
        self,
        cohort: IntArray,
        available: Iterable[int] | None,
        n_invited: int | None,
        target_responses: int | None,
    ) -> RoundOpened:
        """Return the event of the next round."""
        engine, m = self.engine, target_responses or self.target_responses
        online = clients = engine.available(0.0)[0]
        if available is not None:
            clients = np.array(list(available), dtype=np.int64)
        context = replace(
            engine.context(),
            round=engine.task.round + 1,
            available=clients,
            n_invited=n_invited or m,
            target_responses=m,
        )
        return RoundOpened(
            round=context.round,
            cohort=cohort,
            n_invited=context.n_invited,
            target_responses=m,
            deadline_s=None,
            is_timed=False,
            busy=np.setdiff1d(online, clients),
            response_rate=engine.task.cohort_response_rate,
            selection=None,
            context=context,
            now_s=0.0,
        )
