"""Follows the rounds of one scheduler in real time: open, sent, record, is_over, close."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Generic

from bsfl.errors import InvalidInput, NotEnoughClients
from bsfl.rounds.clock import SYSTEM, Clock, pause_s
from bsfl.rounds.invitations import Invitation, Invitations, Token
from bsfl.rounds.running import RoundResult, RunningRound
from bsfl.scheduler import Scheduler
from bsfl.types import ClientId, Cohort, Observation, Outcome, RoundPlan


class RoundManager(Generic[Token]):
    """Opens, follows and closes rounds for a loop that sends models and receives responses.

        cohort = rounds.open(available)
        rounds.sent({client: send(client) for client in cohort})
        while not rounds.is_over():
            rounds.record(responses_within(rounds.pause_s()))
        result = rounds.close()

    Responses may come in any order and long after their round. The result of every invitation is
    reported to the scheduler once: a latency, a timeout or a failure. A response is fresh if it is
    among the first target_responses of the running round; every other one is late. With
    `late="drop"` in the plan only the latency of a late response is reported, and an overdue client
    is reported as a timeout at once. With `late="apply"` the whole late response is reported and
    credited, so a client times out only when its invitation expires.

    Attributes:
        scheduler: Selects and learns.
        plan: The numbers of a round; may be replaced between two rounds.
        clock: The server's clock.
        invitations: Those without a response that have not expired, of all rounds.
        seen: The clients that have responded so far.
    """

    def __init__(self, scheduler: Scheduler, plan: RoundPlan, *, clock: Clock = SYSTEM) -> None:
        self.scheduler, self.plan, self.clock = scheduler, plan, clock
        self.invitations: Invitations[Token] = Invitations(clock)
        self.seen: set[ClientId] = set()
        self._cohort: Cohort | None = None
        self._started_at = 0.0
        self._round: RunningRound | None = None  # None between two rounds
        self._invited: dict[ClientId, Invitation] = {}
        self._n_late = 0

    def open(self, available: Collection[ClientId]) -> Cohort:
        """Open the next round and return its cohort, the clients to send the model to.

        Args:
            available: The clients that can be invited; leave out `invitations.busy` if a client
                works on one model at a time.
        """
        if not available:
            raise NotEnoughClients("a round needs at least one available client, got none")
        plan, scheduler = self.plan, self.scheduler
        scheduler.plan = replace(
            scheduler.plan, late=plan.late, max_staleness=plan.max_staleness
        )  # rules for responses to any round
        self._round = None
        self._cohort = scheduler.select(
            available=available,
            cohort_size=min(plan.target_responses, len(available)),
            over_selection=plan.over_selection,
            deadline_s=plan.deadline_s,
        )
        self._started_at = self.clock.monotonic()
        return self._cohort

    def sent(
        self,
        tokens: Mapping[ClientId, Token],
        *,
        at: float | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Record what was sent to the cohort; a client without a token could not be reached.

        Args:
            tokens: For each client what its response will be recognised by.
            at: When sending began, on the clock of these rounds; None: when the round was opened.
            timeout_s: Seconds after which this round ends; None: the plan alone decides.
        """
        cohort, plan = self._cohort, self.plan
        if cohort is None:
            raise InvalidInput("no round was opened; call open first")
        if foreign := tokens.keys() - set(cohort):
            raise InvalidInput(f"tokens must name clients of the cohort, got {min(foreign)!r}")
        if at is not None:
            self._started_at = at
        self._round = RunningRound(plan, cohort, timeout_s)
        start, expiry_s = self._started_at, plan.expiry_s(timeout_s)
        due_s = expiry_s if plan.late == "apply" else plan.due_s(timeout_s)
        self._invited = {}
        for client, token in tokens.items():
            self._invited[client] = Invitation(
                client=client,
                round=cohort.round,
                sent_at=start,
                due_at=start + due_s,
                expires_at=start + expiry_s,
            )
            self.invitations.open(token, self._invited[client])
        unsent = [client for client in cohort if client not in tokens]
        for client in unsent:
            self._round.record(client, "failed")
        if unsent:
            failed = dict.fromkeys(unsent, Observation(outcome="failed"))
            self.scheduler.observe(failed, round=cohort)

    def record(self, responses: Mapping[Token, Outcome | Observation]) -> None:
        """Record the responses since the last call, to any round, and report them to the scheduler.

        Call it now and then even without responses: it also finds clients that are overdue. A
        response under a token that is not open, as its invitation has expired, is ignored.

        Args:
            responses: For each token the outcome, whose latency is the time until now, or an
                Observation.
        """
        observations = {
            token: self._observed_now(self.invitations[token], response)
            if isinstance(response, str)
            else response
            for token, response in responses.items()
            if token in self.invitations
        }
        fresh, late = [], []
        for token, observation in observations.items():
            invitation = self.invitations.settle(token)
            client, is_ok = invitation.client, observation.outcome == "ok"
            is_running = self._is_running(invitation)
            if is_running:
                self._running.record(client, observation.outcome, observation.latency_s)
            if is_ok:
                self.seen.add(client)
                self._n_late += not is_running
            if is_ok and not (is_running and client in self.kept):
                if self.plan.late == "drop":
                    observation = Observation(latency_s=observation.latency_s)
                late.append((invitation, observation))
            else:
                fresh.append((invitation, observation))
        overdue = [one for one in self.invitations.overdue() if not self._is_running(one)]
        late += [(invitation, self._observed_now(invitation, "timeout")) for invitation in overdue]
        self._report(fresh)
        if any(self._is_running(invitation) for invitation, _ in late):
            self.scheduler.close(round=self._cohort)  # the target is reached: what follows is late
        self._report(late)

    @property
    def kept(self) -> tuple[ClientId, ...]:
        """The clients whose responses count so far in the running round."""
        return self._running.kept

    def is_over(self) -> bool:
        """Return whether the running round is over."""
        return self._running.is_over(self.waited_s)

    def pause_s(self) -> float:
        """Return how long to wait for responses before the next look whether the round is over."""
        return pause_s(self.waited_s, until=self._running.closes_at)

    @property
    def waited_s(self) -> float:
        return self.clock.monotonic() - self._started_at

    def close(self) -> RoundResult:
        """Close the round, over or not, and return its result.

        A client that has not responded is listed as a timeout if it is overdue, and its response
        may still come until its invitation expires.
        """
        ended, waited_s, cohort = self._running, self.waited_s, self._cohort
        assert cohort is not None
        overdue = ended.missing if waited_s >= ended.plan.due_s(ended.timeout_s) else ()
        settles_s = self.plan.expiry_s(ended.timeout_s) if self.plan.late == "apply" else 0.0
        if waited_s >= settles_s:
            unresponsive = [self._invited[client] for client in overdue]
            self._report([(one, self._observed_now(one, "timeout")) for one in unresponsive])
        self.scheduler.close(round=cohort)
        n_late, self._n_late, self._round = self._n_late, 0, None
        return RoundResult(
            round=cohort.round,
            cohort=tuple(cohort),
            kept=ended.kept,
            timeouts=(*ended.with_outcome("timeout"), *overdue),
            failed=ended.with_outcome("failed"),
            latencies=ended.latencies,
            duration_s=waited_s,
            n_late=n_late,
            n_seen=len(self.seen),
            n_clients=len(self.scheduler.clients),
        )

    @property
    def _running(self) -> RunningRound:
        if self._round is None:
            raise InvalidInput("no round is running; call open, then sent")
        return self._round

    def _is_running(self, invitation: Invitation) -> bool:
        """Return whether an invitation belongs to the running round."""
        return self._round is not None and self._invited.get(invitation.client) is invitation

    def _observed_now(self, invitation: Invitation, outcome: Outcome) -> Observation:
        """Return the observation of an invitation whose result is known now."""
        return Observation(latency_s=self.invitations.waited_s(invitation), outcome=outcome)

    def _report(self, results: Iterable[tuple[Invitation, Observation]]) -> None:
        """Report results to the scheduler round by round, except those that were reported."""
        by_round: dict[int, dict[ClientId, Observation]] = {}
        for invitation, observation in results:
            if not invitation.is_reported:
                invitation.is_reported = True
                by_round.setdefault(invitation.round, {})[invitation.client] = observation
        for number, observations in by_round.items():
            self.scheduler.observe(observations, round=number)
