"""Scheduled: any workflow of NVFlare that samples clients, with clients that a scheduler chose."""

import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bsfl.errors import FileInUse, InvalidInput
from bsfl.policies import make_policy
from bsfl.records import Observation, Outcome
from bsfl.rounds import SYSTEM, Clock, ClosedRound, RoundPlan, Rounds
from bsfl.scheduler import Scheduler
from bsfl.scheduling.clients import ClientId

Token = tuple[str, int]
"""A site and the round that it was invited to."""

_LOG = logging.getLogger("bsfl")


class Scheduled:
    """Put before a workflow that is a ModelController: `class Mine(Scheduled, Scaffold): ...`.

    `sample_clients` opens a round of the scheduler. `send_model` and `send_model_and_wait` to these
    clients time their answers and end the round at the deadline, or when enough have answered.
    Answers that come later teach how long a site takes; until then it is not invited again. All
    options are plain values, as NVFlare writes them into the configuration of a job.

    Attributes:
        scheduler: The scheduler in use, restored from state_path if it is there.
        closed: What every round was like.
    """

    clock: Clock = SYSTEM

    def __init__(
        self,
        *args: Any,
        policy: str = "pace",
        settings: dict[str, Any] | None = None,
        deadline_s: float | None = None,
        invite: float | str = 1.0,
        loss_key: str | None = None,
        state_path: str = "",
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        """Take what the workflow takes, and the settings of the scheduler.

        Args:
            *args: For the workflow.
            **kwargs: For the workflow; its num_clients is the size of a cohort.
            policy: The name of a selection rule.
            settings: Its settings.
            deadline_s: Seconds after which a round ends without those who have not answered.
            invite: How many times num_clients are invited, or "auto"; the first num_clients answers
                are kept.
            loss_key: The metric in which sites report their loss.
            state_path: File that keeps what the scheduler knows: read when the workflow starts,
                written after every round. Empty: none.
            seed: Root of all randomness.
        """
        super().__init__(*args, **kwargs)
        self.policy, self.settings, self.seed = policy, settings, seed
        self.deadline_s, self.invite, self.loss_key = deadline_s, invite, loss_key
        self.state_path = state_path
        self.closed: list[ClosedRound] = []
        self._rounds: Rounds[Token] | None = None
        self._cohort: dict[ClientId, Token] = {}
        self._is_sent = False
        self._lock = threading.RLock()  # results come in on threads of NVFlare

    @property
    def scheduler(self) -> Scheduler:
        return self._begun().scheduler

    def run(self) -> None:
        """Run the workflow, and keep what its last round taught."""
        try:
            super().run()  # type: ignore[misc]  # the workflow's
        finally:
            self._end_round()

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Return the sites that the scheduler chooses of those that are connected and not busy."""
        self._end_round()
        with self._lock:
            rounds = self._begun()
            connected = [client.name for client in self.engine.get_clients()]  # type: ignore[attr-defined]
            idle = [name for name in connected if name not in rounds.invitations.busy]
            cohort = rounds.open(idle or connected)
            self._cohort = {name: (name, rounds.scheduler.t) for name in cohort}
            self._is_sent = False
            self.info(f"bsfl: round {rounds.scheduler.t}: {cohort}")  # type: ignore[attr-defined]
            return cohort

    def send_model(self, *args: Any, **kwargs: Any) -> None:
        """Send a model; if it goes to the cohort, time the answers and end the round as told."""
        targets = kwargs.get("targets")
        if self._is_sent or args or targets is None or set(targets) != set(self._cohort):
            super().send_model(*args, **kwargs)  # type: ignore[misc]
            return
        with self._lock:
            rounds = self._begun()
            rounds.sent(self._cohort, at=rounds.clock.monotonic())
            self._is_sent = True
        if self.deadline_s is not None and not kwargs.get("timeout"):
            kwargs["timeout"] = math.ceil(self.deadline_s)
        if len(self._cohort) > rounds.plan.cohort_size and kwargs.get("min_responses") is None:
            kwargs["min_responses"] = rounds.plan.cohort_size
        kwargs["callback"] = self._timed(kwargs["callback"])
        super().send_model(**kwargs)  # type: ignore[misc]

    def send_model_and_wait(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Send a model and return the answers of those whose work counts."""
        results: list[Any] = []
        targets = kwargs.get("targets")
        if args or targets is None or set(targets) != set(self._cohort) or self._is_sent:
            results = super().send_model_and_wait(*args, **kwargs)  # type: ignore[misc]
            return results
        self.send_model(**kwargs, callback=results.append)
        while self.get_num_standing_tasks() and not self.abort_signal.triggered:  # type: ignore[attr-defined]
            time.sleep(self._task_check_period)  # type: ignore[attr-defined]
        self._end_round()
        return results

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Any, fl_ctx: Any
    ) -> None:
        """Learn from an answer that comes when its round is over."""
        with self._lock:
            rounds = self._begun()
            late = [token for token in rounds.invitations.tokens if token[0] == client.name]
            rounds.hear(dict.fromkeys(late[:1], "ok"))
        super().process_result_of_unknown_task(  # type: ignore[misc]
            client, task_name, client_task_id, result, fl_ctx
        )

    def _timed(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a callback that books an answer before it is used, if it is."""

        def heard(result: Any) -> Any:
            name = result.meta["client_name"]
            with self._lock:
                rounds = self._begun()
                token = self._cohort.get(name)
                if token is None or token not in rounds.invitations:
                    return False
                rounds.hear({token: self._observation(token, result)})
                is_kept = name in rounds.kept
            return callback(result) if is_kept else False

        return heard

    def _observation(self, token: Token, result: Any) -> Observation:
        invitations = self._begun().invitations
        waited_s = invitations.waited_s(invitations[token])
        outcome: Outcome = "ok" if result.params else "failed"
        loss = (result.metrics or {}).get(self.loss_key)
        try:
            return Observation(latency=waited_s, outcome=outcome, loss=loss)
        except InvalidInput:  # a loss that is none; the scheduler says what becomes of it
            return Observation(latency=waited_s, outcome=outcome)

    def _begun(self) -> Rounds[Token]:
        """Return the rounds of this workflow; they begin when somebody asks."""
        if self._rounds is None:
            policy = make_policy(self.policy, **self.settings or {})
            m: int = self.num_clients  # type: ignore[attr-defined]
            scheduler = Scheduler(policy, cohort_size=m, seed=self.seed)
            if self.state_path and Path(self.state_path).exists():
                scheduler = Scheduler.load(self.state_path, policy=policy)
                scheduler.cohort_size = m
                scheduler.abandon()
                _LOG.info("bsfl: %s goes on after round %d", self.state_path, scheduler.t)
            plan = RoundPlan(cohort_size=m, deadline_s=self.deadline_s, invite=self.invite)  # type: ignore[arg-type]
            self._rounds = Rounds(scheduler, plan, clock=self.clock)
        return self._rounds

    def _end_round(self) -> None:
        """Close the round that is running, if one is, and keep what it taught."""
        with self._lock:
            if not self._is_sent or self._rounds is None:
                return
            rounds, self._is_sent = self._rounds, False
            if not rounds.is_over():  # NVFlare ended it: who is missing will not answer
                missing = [t for t in self._cohort.values() if t in rounds.invitations]
                rounds.hear(dict.fromkeys(missing, "failed"))
            closed = rounds.close()
            self.closed.append(closed)
            self.info(closed.line())  # type: ignore[attr-defined]
            if self.state_path:
                try:
                    rounds.scheduler.save(self.state_path)
                except (OSError, FileInUse) as error:
                    _LOG.warning("bsfl: %s cannot be written: %s", self.state_path, error)
