"""Scheduled: a mixin with which a scheduler selects the clients of any NVFlare workflow."""

import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bsfl.errors import FileInUse, InvalidInput
from bsfl.policies import make_policy
from bsfl.rounds import SYSTEM, Clock, RoundManager, RoundResult
from bsfl.scheduler import Scheduler
from bsfl.types import ClientId, Observation, Outcome, RoundPlan

Token = tuple[str, int]
"""A site and the round that it was invited to."""

_LOG = logging.getLogger("bsfl")


class Scheduled:
    """A mixin for workflows that are ModelControllers: `class Mine(Scheduled, Scaffold): ...`.

    `sample_clients` opens a round of the scheduler. `send_model` and `send_model_and_wait` to these
    clients measure the latencies of their responses, and end the round at the deadline or with
    num_clients responses. From a late response the latency of the site is learned; until then the
    site is not invited again. All options are plain values, as NVFlare writes them into the
    configuration of a job.

    Attributes:
        scheduler: The scheduler in use, restored from state_path if that exists.
        round_results: The result of every round so far.
    """

    clock: Clock = SYSTEM

    def __init__(
        self,
        *args: Any,
        policy: str = "pace",
        settings: dict[str, Any] | None = None,
        deadline_s: float | None = None,
        over_selection: float | str = 1.0,
        loss_key: str | None = None,
        state_path: str = "",
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        """Take the arguments of the workflow, and the settings of the scheduler.

        Args:
            *args: For the workflow.
            **kwargs: For the workflow; its num_clients is the number of responses a round needs.
            policy: The name of a selection rule.
            settings: Its settings.
            deadline_s: Seconds after which a round ends without the missing responses.
            over_selection: How many sites are invited per response that a round needs, or "auto";
                the first num_clients responses are kept.
            loss_key: The metric in which sites report their loss.
            state_path: State file of the scheduler: read when the workflow starts, written after
                every round. Empty: none.
            seed: Root of all randomness.
        """
        super().__init__(*args, **kwargs)
        self.policy, self.settings, self.seed = policy, settings, seed
        self.deadline_s, self.over_selection, self.loss_key = deadline_s, over_selection, loss_key
        self.state_path = state_path
        self.round_results: list[RoundResult] = []
        self._rounds: RoundManager[Token] | None = None
        self._cohort: dict[ClientId, Token] = {}
        self._is_sent = False
        self._lock = threading.RLock()  # results come in on threads of NVFlare

    @property
    def scheduler(self) -> Scheduler:
        return self._round_manager().scheduler

    def run(self) -> None:
        """Run the workflow, and close its last round."""
        try:
            super().run()  # type: ignore[misc]  # the workflow's
        finally:
            self._end_round()

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Return the sites that the scheduler selects among the connected ones that are idle."""
        self._end_round()
        with self._lock:
            rounds = self._round_manager()
            connected = [client.name for client in self.engine.get_clients()]  # type: ignore[attr-defined]
            idle = [name for name in connected if name not in rounds.invitations.busy]
            cohort = rounds.open(idle or connected)
            self._cohort = {name: (name, cohort.round) for name in cohort}
            self._is_sent = False
            self.info(f"bsfl: round {cohort.round}: {cohort}")  # type: ignore[attr-defined]
            return cohort

    def send_model(self, *args: Any, **kwargs: Any) -> None:
        """Send a model; to the cohort, with the deadline and the target responses of the round."""
        targets = kwargs.get("targets")
        if self._is_sent or args or targets is None or set(targets) != set(self._cohort):
            super().send_model(*args, **kwargs)  # type: ignore[misc]
            return
        with self._lock:
            rounds = self._round_manager()
            rounds.sent(self._cohort, at=rounds.clock.monotonic())
            self._is_sent = True
        if self.deadline_s is not None and not kwargs.get("timeout"):
            kwargs["timeout"] = math.ceil(self.deadline_s)
        if len(self._cohort) > rounds.plan.target_responses and kwargs.get("min_responses") is None:
            kwargs["min_responses"] = rounds.plan.target_responses
        kwargs["callback"] = self._recording(kwargs["callback"])
        super().send_model(**kwargs)  # type: ignore[misc]

    def send_model_and_wait(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Send a model and return the responses that count."""
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
        """Record a response that comes after its round is over."""
        with self._lock:
            rounds = self._round_manager()
            late = [token for token in rounds.invitations.tokens if token[0] == client.name]
            rounds.record(dict.fromkeys(late[:1], "ok"))
        super().process_result_of_unknown_task(  # type: ignore[misc]
            client, task_name, client_task_id, result, fl_ctx
        )

    def _recording(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a callback that records a response, and passes it on if it counts."""

        def record(result: Any) -> Any:
            name = result.meta["client_name"]
            with self._lock:
                rounds = self._round_manager()
                token = self._cohort.get(name)
                if token is None or token not in rounds.invitations:
                    return False
                rounds.record({token: self._observation(token, result)})
                is_kept = name in rounds.kept
            return callback(result) if is_kept else False

        return record

    def _observation(self, token: Token, result: Any) -> Observation:
        invitations = self._round_manager().invitations
        waited_s = invitations.waited_s(invitations[token])
        outcome: Outcome = "ok" if result.params else "failed"
        loss = (result.metrics or {}).get(self.loss_key)
        try:
            return Observation(latency_s=waited_s, outcome=outcome, loss=loss)
        except InvalidInput:  # the loss is not finite; the scheduler decides without it
            return Observation(latency_s=waited_s, outcome=outcome)

    def _round_manager(self) -> RoundManager[Token]:
        """Return the round manager of this workflow; it is made on first use."""
        if self._rounds is None:
            policy = make_policy(self.policy, **self.settings or {})
            m: int = self.num_clients  # type: ignore[attr-defined]
            scheduler = Scheduler(policy, cohort_size=m, seed=self.seed)
            if self.state_path and Path(self.state_path).exists():
                scheduler = Scheduler.load(self.state_path, policy=policy)
                scheduler.cohort_size = m
                scheduler.abandon()
                _LOG.info("bsfl: %s resumes after round %d", self.state_path, scheduler.round)
            plan = RoundPlan(
                target_responses=m,
                deadline_s=self.deadline_s,
                over_selection=self.over_selection,  # type: ignore[arg-type]
                late="drop",
            )
            self._rounds = RoundManager(scheduler, plan, clock=self.clock)
        return self._rounds

    def _end_round(self) -> None:
        """Close the running round, if any, and save the scheduler."""
        with self._lock:
            if not self._is_sent or self._rounds is None:
                return
            rounds, self._is_sent = self._rounds, False
            if not rounds.is_over():  # NVFlare ended it: the missing sites will not respond
                missing = [t for t in self._cohort.values() if t in rounds.invitations]
                rounds.record(dict.fromkeys(missing, "failed"))
            result = rounds.close()
            self.round_results.append(result)
            self.info(result.line())  # type: ignore[attr-defined]
            if self.state_path:
                try:
                    rounds.scheduler.save(self.state_path)
                except (OSError, FileInUse) as error:
                    _LOG.warning("bsfl: %s cannot be written: %s", self.state_path, error)
