"""The rounds of one scheduler: open, sent, hear, is_over, close."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic

from bsfl.errors import InvalidInput, NotEnoughClients
from bsfl.records import Observation, Outcome
from bsfl.rounds.invitations import Invitation, Invitations, Token
from bsfl.rounds.plan import SYSTEM, Clock, RoundPlan, pause_s
from bsfl.rounds.round import ClosedRound, Round
from bsfl.scheduler import Scheduler
from bsfl.scheduling.clients import ClientId


class Rounds(Generic[Token]):
    """Opens, follows and closes rounds for whoever sends the models and hears the answers.

        cohort = rounds.open(available)
        rounds.sent({client: send(client) for client in cohort})
        while not rounds.is_over():
            rounds.hear(answers_within(rounds.pause_s()))
        closed = rounds.close()

    Answers may come in any order and long after their round. The scheduler is told once what became
    of every invitation: how long it took, that it is overdue, or that it failed.

    Attributes:
        scheduler: Chooses, and learns.
        plan: The numbers of a round.
        clock: The server's.
        invitations: Those that are neither answered nor expired, of all rounds.
        seen: Who has answered so far.
    """

    def __init__(self, scheduler: Scheduler, plan: RoundPlan, *, clock: Clock = SYSTEM) -> None:
        self.scheduler, self.plan, self.clock = scheduler, plan, clock
        self.invitations: Invitations[Token] = Invitations(clock)
        self.seen: set[ClientId] = set()
        self._cohort: list[Any] = []
        self._started_at = 0.0
        self._round: Round | None = None  # None between two rounds
        self._invited: dict[ClientId, Invitation] = {}
        self._n_late = 0

    def open(self, available: Collection[ClientId]) -> list[Any]:
        """Start the next round and return its cohort, the clients to send the model to.

        Args:
            available: Who can be invited; leave out `invitations.busy` if a client works on one
                model at a time.
        """
        if not available:
            raise NotEnoughClients("a round needs at least one available client, got none")
        self._round = None
        all_of_few = len(available) if len(available) < self.plan.cohort_size else None
        self._cohort = self.scheduler.select(
            available=available, cohort_size=all_of_few, invite=self.plan.invite
        )
        self._started_at = self.clock.monotonic()
        return list(self._cohort)

    def sent(
        self,
        tokens: Mapping[ClientId, Token],
        *,
        at: float | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Book what was sent to the cohort; who is not named could not be reached and has failed.

        Args:
            tokens: For each client what its answer will be recognised by.
            at: When sending began, on the clock of these rounds; None: when the cohort was chosen.
            timeout_s: Seconds after which this round is given up; None: the plan alone decides.
        """
        if strangers := tokens.keys() - set(self._cohort):
            raise InvalidInput(f"tokens must name clients of the cohort, got {min(strangers)!r}")
        if at is not None:
            self._started_at = at
        self._round = Round(self.plan, self._cohort, timeout_s)
        start = self._started_at
        due, end = start + self.plan.due_s(timeout_s), start + self.plan.expiry_s(timeout_s)
        self._invited = {
            k: Invitation(client=k, sent_at=start, due_at=due, expires_at=end) for k in tokens
        }
        for client, token in tokens.items():
            self.invitations.open(token, self._invited[client])
        unsent = [client for client in self._cohort if client not in tokens]
        for client in unsent:
            self._round.hear(client, "failed")
        self.scheduler.observe({client: Observation(outcome="failed") for client in unsent})

    def hear(self, answers: Mapping[Token, Outcome | Observation]) -> None:
        """Take in what came since the last call, to whichever round; tell the scheduler.

        Call it now and then even if nothing came: it also notices who is overdue. An answer under a
        token that is not open, as its invitation has expired, is passed over.

        Args:
            answers: For each token the outcome, which then took until now, or an Observation.
        """
        heard = {
            token: self._after_waiting(self.invitations[token], answer)
            if isinstance(answer, str)
            else answer
            for token, answer in answers.items()
            if token in self.invitations
        }
        told = []
        for token, answer in heard.items():
            invitation = self.invitations.settle(token)
            if answer.outcome == "ok":
                self.seen.add(invitation.client)
            is_kept = False
            if self._is_running(invitation):
                self._running.hear(invitation.client, answer.outcome, answer.latency)
                is_kept = invitation.client in self._running.kept
            else:
                self._n_late += answer.outcome == "ok"
            if answer.outcome == "ok" and not is_kept:  # it taught how long it takes, no more
                answer = Observation(latency=answer.latency, outcome="late")
            told.append((invitation, answer))
        late = [one for one in self.invitations.overdue() if not self._is_running(one)]
        self._tell([*told, *((one, self._after_waiting(one, "timeout")) for one in late)])

    @property
    def kept(self) -> tuple[ClientId, ...]:
        """Whose work counts so far in the round that is running."""
        return self._running.kept

    def is_over(self) -> bool:
        return self._running.is_over(self.waited_s)

    def pause_s(self) -> float:
        """Return how long to wait for answers before asking again whether the round is over."""
        return pause_s(self.waited_s, until=self._running.closes_at)

    @property
    def waited_s(self) -> float:
        return self.clock.monotonic() - self._started_at

    def close(self) -> ClosedRound:
        """End the round, over or not, and return what it was like.

        Who has not answered is told to the scheduler as a timeout if it is overdue; if not, it is
        still listened to.
        """
        ended, waited_s = self._running, self.waited_s
        late = ended.missing if waited_s >= ended.due_s else ()
        silent = [self._invited[client] for client in late]
        self._tell((one, self._after_waiting(one, "timeout")) for one in silent)
        n_late, self._n_late, self._round = self._n_late, 0, None
        return ClosedRound(
            t=self.scheduler.t,
            cohort=tuple(ended.cohort),
            kept=ended.kept,
            timeouts=(*ended.with_outcome("timeout"), *late),
            failed=ended.with_outcome("failed"),
            latencies=ended.latencies,
            duration_s=waited_s,
            n_late=n_late,
            n_seen=len(self.seen),
            n_fleet=len(self.scheduler.clients),
        )

    @property
    def _running(self) -> Round:
        if self._round is None:
            raise InvalidInput("no round is running; call open, then sent")
        return self._round

    def _is_running(self, invitation: Invitation) -> bool:
        """Return whether an invitation belongs to the round that is running."""
        return self._round is not None and self._invited.get(invitation.client) is invitation

    def _after_waiting(self, invitation: Invitation, outcome: Outcome) -> Observation:
        """Return what an answer shows that comes now, or that does not come."""
        return Observation(latency=self.invitations.waited_s(invitation), outcome=outcome)

    def _tell(self, told: Iterable[tuple[Invitation, Observation]]) -> None:
        """Tell the scheduler what became of invitations, except of those that it knows of."""
        batch: dict[ClientId, Observation] = {}
        for invitation, observation in told:
            if invitation.is_reported:
                continue
            invitation.is_reported = True
            if invitation.client in batch:  # it was restarted and invited twice
                self.scheduler.observe(batch)
                batch = {}
            batch[invitation.client] = observation
        self.scheduler.observe(batch)
