"""The engine: selects clients and learns from them. It is the only caller of policies.

    event = engine.decide(command, now_s)    validates everything, calls the policy, changes nothing
    engine.apply(event)                      changes the state, decides nothing

Clients are dense indices; there are no ids, clocks, locks or files here. A Scheduler adds those,
the simulator adds a virtual clock and simulated clients.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from bsfl import validation
from bsfl._core.events import (
    Abandon,
    CloseRound,
    Command,
    Describe,
    Event,
    Forget,
    Join,
    Leave,
    OpenRound,
    Respond,
    ResponsesReported,
    RoundClosed,
    RoundOpened,
    SetAvailability,
)
from bsfl._core.pool import PoolState, PoolView
from bsfl._core.rounds import CLOSED, CONFIRMED, Round, Rounds
from bsfl._core.state import MAX_ROUNDS, check_storable, copy_rows, drop_rows, snapshot
from bsfl._core.task import TaskState, TaskView
from bsfl.errors import InvalidInput, NotSelected
from bsfl.estimators.over_selection import select_enough
from bsfl.policy import (
    LOSS,
    LOSSES_FROM_0,
    SAMPLES,
    Policy,
    Selection,
    check_forgettable,
    check_policy,
)
from bsfl.random import stream
from bsfl.types import (
    LATENCY_RANGE,
    NO_CLIENTS,
    OK,
    ClosedRound,
    FloatArray,
    IntArray,
    RoundContext,
    RoundPlan,
    RoundReport,
    State,
    max_invited,
    without,
)

Kind = Literal["synchronous", "buffered"]
PARTS = ("pool", "task", "policy_state", "n_rows", "selection")
"""What is replaced, or changed row by row, when an event is applied; and the rounds."""


class Engine:
    """One training job on a pool of clients.

    >>> from bsfl import UniformRandom
    >>> engine = Engine(UniformRandom(), RoundPlan(target_responses=2), n_clients=5)
    >>> opened = engine.run(OpenRound(), now_s=0.0)
    >>> len(opened.cohort), engine.rounds.latest.is_open
    (2, True)

    Attributes:
        policy: The selection rule.
        plan: The numbers of a round.
        seed: Root of all randomness.
        max_open_rounds: How many rounds may be open at a time.
        pool, task, policy_state, rounds: The state.
        selection: What the last cohort was weighed by, and who was available; None: not known.
    """

    def __init__(
        self,
        policy: Policy,
        plan: RoundPlan,
        *,
        seed: int = 0,
        n_clients: int = 0,
        max_open_rounds: int = 1,
    ) -> None:
        check_policy(policy)
        check_storable(policy.init)
        self.policy, self.plan, self.seed = policy, plan, seed
        self.pool, self.task, self.rounds = PoolState.of(0), TaskState.of(0), Rounds()
        self.max_open_rounds = validation.natural("max_open_rounds", max_open_rounds)
        self.policy_state: State = policy.init(0)
        self.n_rows = 0  # of the policy's state
        self.selection: tuple[Selection, IntArray] | None = None
        self.last_closed: Round | None = None  # by the last event, for its record
        self._undo: list[Callable[[], None]] | None = None
        self._views: tuple[PoolView, TaskView] | None = None
        if n_clients:
            self.apply(self.decide(Join(n_new=n_clients), 0.0))

    # --- queries ---------------------------------------------------------------------------------

    @property
    def max_open_rounds(self) -> int:
        """How many rounds may be open at a time; the credit of as many can be replaced."""
        return self._max_open_rounds

    @max_open_rounds.setter
    def max_open_rounds(self, max_open_rounds: int) -> None:
        self._max_open_rounds = max_open_rounds
        self.rounds.release_all(keep=max_open_rounds)

    def kind(self, target_responses: int) -> Kind:
        """Return whether rounds are buffered: several are open, with one client each."""
        is_buffered = self.max_open_rounds > 1 and target_responses == 1
        return "buffered" if is_buffered else "synchronous"

    @property
    def n_clients(self) -> int:
        """How many clients have a row, members or not."""
        return self.pool.n

    def available(self, now_s: float) -> tuple[IntArray, IntArray]:
        """Return the clients that can be selected, and online ones left out as in flight."""
        online, lifetime_s = self.pool.online[: self.pool.n], self.plan.lifetime_s
        if lifetime_s is None:
            return np.flatnonzero(online), NO_CLIENTS
        is_busy = np.zeros(self.pool.n, dtype=bool)
        for one in self.rounds:
            if now_s - one.opened_s < lifetime_s:  # its invitations have not expired
                is_busy[one.pending] = True
        return np.flatnonzero(online & ~is_busy), np.flatnonzero(online & is_busy)

    def views(self, n: int | None = None) -> tuple[PoolView, TaskView]:
        """Return read-only views of pool and task over n rows; None: over all clients."""
        n = self.pool.n if n is None else n
        if self._views is None or len(self._views[0]) != n:
            self._views = PoolView(self.pool, n), TaskView(self.task, n)
        return self._views

    def context(self, round: Round | None = None) -> RoundContext:  # noqa: A002
        """Return the context of a round that is open or closed; None: of the next one."""
        pool, task = self.views(self.n_rows)
        m = round.target_responses if round else self.plan.target_responses
        return RoundContext(
            round=round.number if round else self.task.round,
            kind=self.kind(m),
            now_s=round.opened_s if round else 0.0,
            available=NO_CLIENTS,
            n_invited=round.n_invited if round else m,
            target_responses=m,
            pool=pool,
            task=task,
        )

    def weights(self, clients: IntArray) -> FloatArray | None:
        """Return the weights that the policy gives the updates of clients now; None: none."""
        context = self.context(self.rounds.latest)
        if self.selection is not None and context.kind == "synchronous":
            context = replace(context, available=self.selection[1])
        return self.policy.weights(self.policy_state, context, clients)

    def diagnostics(self) -> dict[str, float]:
        """Return what the policy has learned, by name."""
        found = self.policy.diagnostics(self.policy_state, self.context())
        return {name: float(value) for name, value in found.items()}

    def rounds_beyond_limit(self) -> list[int]:
        """Return the open rounds that must close before another one can be opened."""
        still_open = self.rounds.open()
        n_excess = len(still_open) - self.max_open_rounds + 1
        return [one.number for one in still_open[: max(n_excess, 0)]]

    # --- decide ----------------------------------------------------------------------------------

    def run(self, command: Command, now_s: float = 0.0, *, is_timed: bool = False) -> Any:
        """Decide on a command, apply the event and return it."""
        event = self.decide(command, now_s, is_timed=is_timed)
        self.apply(event)
        return event

    @overload
    def decide(self, command: OpenRound, now_s: float, *, is_timed: bool = ...) -> RoundOpened: ...

    @overload
    def decide(self, command: Command, now_s: float, *, is_timed: bool = ...) -> Event: ...

    def decide(self, command: Command, now_s: float, *, is_timed: bool = False) -> Event:
        """Return the event that a command leads to; raise if it cannot be carried out.

        Args:
            command: What is to be done.
            now_s: Time on the caller's clock.
            is_timed: Whether the caller gave it, so that a difference of times is a duration.
        """
        match command:
            case OpenRound():
                return self._decide_open(command, now_s, is_timed)
            case Respond():
                return self._decide_respond(command, now_s)
            case CloseRound():
                return self._decide_close(command, now_s, is_timed)
            case Describe():
                self._check_features(command)
            case Forget():
                check_forgettable(self.policy)
        return command

    def _decide_open(self, command: OpenRound, now_s: float, is_timed: bool) -> RoundOpened:
        if beyond := self.rounds_beyond_limit():
            raise InvalidInput(
                f"at most {self.max_open_rounds} rounds may be open; close round {beyond[0]} first"
            )
        plan, number = self.plan, validation.natural("round", self.task.round + 1, high=MAX_ROUNDS)
        m = command.target_responses or plan.target_responses
        validation.cohort_fits(m, self.pool.n_members)
        state = self._state_with_all_rows()
        available, busy = self.available(now_s)
        online_s = command.online_s
        pool, task = self.views()
        context = RoundContext(
            round=number,
            kind=self.kind(m),
            now_s=now_s,
            available=available,
            n_invited=m,
            target_responses=m,
            pool=pool,
            task=task,
            online_s=None if online_s is None else online_s[available],
        )

        def select(n: int) -> Selection:
            rng = stream(self.seed, "policy", number)
            here = context if n == m else replace(context, n_invited=n)
            made = self.policy.select(state, here, rng)
            return _validated(self.policy, here, made)

        over_selection = command.over_selection or plan.over_selection
        response_rate = self.task.cohort_response_rate
        if over_selection == "auto":
            n_invited, selection, response_rate = select_enough(
                select, target_responses=m, context=context, response_rate=response_rate
            )
        else:
            n_invited = max_invited(over_selection, m)
            selection = select(n_invited)
        return RoundOpened(
            round=number,
            cohort=selection.clients,
            n_invited=n_invited,
            target_responses=m,
            deadline_s=command.deadline_s or plan.deadline_s,
            is_timed=is_timed,
            busy=busy,
            response_rate=response_rate,
            selection=selection,
            context=context,
            now_s=now_s,
        )

    def _decide_respond(self, command: Respond, now_s: float) -> ResponsesReported:
        one, report = self._round(command.round), command.report
        if not isinstance(report, RoundReport):
            report = RoundReport.of(dict(sorted(report.items())))
        if len(wrong := without(report.clients, one.pending)):
            raise NotSelected(
                f"client {int(wrong[0])} has no pending response in round {one.number}"
            )
        registered = self.pool.samples[report.clients]
        report = replace(
            report,
            round=one.number,
            staleness=self.task.round - one.number,
            samples=np.where(np.isnan(report.samples), registered, report.samples),
            invited=NO_CLIENTS if one.is_reported else one.cohort,
            dropped=self.is_dropped(one),
        )
        self._check_needs(report)
        return ResponsesReported(
            round=one.number, report=report, is_late=not one.is_open, now_s=now_s
        )

    def is_dropped(self, round: Round) -> bool:  # noqa: A002
        """Return whether a response to a round would be dropped now."""
        if round.is_open:
            return False
        limit = self.plan.max_staleness
        is_too_old = limit is not None and self.task.round - round.number > limit
        return self.plan.late == "drop" or round.is_discarded or is_too_old

    def _check_needs(self, report: RoundReport) -> None:
        """Check that usable responses have what the policy needs."""
        needs, name, usable = self.policy.needs, type(self.policy).__name__, report.usable
        loss, samples = report.loss[usable], report.samples[usable]
        if needs >= LOSS and np.isnan(loss).any():
            raise InvalidInput(
                f"{name} needs the loss of every client that responds, {np.isnan(loss).sum()} of "
                f"{len(loss)} responses have none; report Observation(loss=...)"
            )
        if needs >= LOSSES_FROM_0 and np.any(loss < 0):
            raise InvalidInput(f"{name} needs losses of at least 0, got {float(loss.min())!r}")
        if needs >= SAMPLES and np.isnan(samples).any():
            raise InvalidInput(
                f"{name} needs the number of samples of every client that responds, "
                f"{np.isnan(samples).sum()} have none; report Observation(samples=...) or register "
                "the clients' samples"
            )

    def _decide_close(self, command: CloseRound, now_s: float, is_timed: bool) -> RoundClosed:
        one = self._round(command.round)
        if one.status == CONFIRMED:
            raise InvalidInput(f"round {one.number} is closed, and its credit cannot be replaced")
        aggregated = fresh = one.cohort[one.fresh]
        if command.aggregated is not None:
            aggregated = np.unique(command.aggregated)
            if len(foreign := without(aggregated, fresh)):
                raise InvalidInput(
                    f"aggregated must name clients with a fresh response in round {one.number}, "
                    f"got client {int(foreign[0])}"
                )
        duration_s = None
        if one.is_open and one.is_timed and is_timed and len(one.cohort):
            duration_s = max(now_s - one.opened_s, 0.0)
        return RoundClosed(
            round=one.number,
            aggregated=NO_CLIENTS if command.discard else aggregated,
            is_discarded=command.discard,
            is_automatic=command.is_automatic,
            duration_s=duration_s,
            now_s=now_s,
        )

    def _round(self, number: int) -> Round:
        found = self.rounds.get(number)
        if found is None:
            was = "is over" if 1 <= number <= self.task.round else "was never opened"
            raise InvalidInput(f"round {number} {was}")
        return found

    def _check_features(self, command: Describe) -> None:
        features, n_known = command.attributes.get("features"), self.pool.features.shape[1]
        if features is not None and n_known not in (0, features.shape[1]):
            raise InvalidInput(
                f"every client must have the same {n_known} features, got {features.shape[1]}"
            )

    def _state_with_all_rows(self) -> State:
        """Return the policy's state with rows for clients that joined since the last round, too."""
        if self.n_rows == self.pool.n:
            return self.policy_state
        state = self.policy.init(self.pool.n)
        copy_rows(self.policy_state, state)
        return state

    def _add_rows(self) -> None:
        self.policy_state, self.n_rows = self._state_with_all_rows(), self.pool.n

    # --- apply -----------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Change the state as an event says."""
        if self._undo is not None:
            clients, parts = self._changed_by(event)
            for part in parts:
                n = self.n_rows if part is self.policy_state else len(self.pool.member)
                rows = clients[clients < n]  # a client that has just joined has no row there yet
                self._undo.append(snapshot(part, rows, n))
        match event:
            case RoundOpened():
                self._apply_opened(event)
            case ResponsesReported():
                self._apply_responses(event)
            case RoundClosed():
                self._apply_closed(event)
            case Join():
                self._apply_joined(event)
            case Describe():
                self._apply_described(event)
            case Leave():
                self._apply_left(event)
            case SetAvailability():
                self._note_last_seen(event.offline)
                online = self.pool.online.copy()
                online[event.online], online[event.offline] = True, False
                self.pool.online = online
            case Abandon():
                self._apply_abandoned(event)
            case Forget():
                self._apply_forgotten(event)

    def _changed_by(self, event: Event) -> tuple[IntArray, tuple[State, ...]]:
        """Return the clients of whom an event changes rows, and in which parts of the state.

        Arrays and rounds that it replaces do not count: transaction() has the old ones.
        """
        pool, task, policy = self.pool, self.task, self.policy_state
        match event:
            case RoundOpened():
                return event.cohort, (task,)
            case ResponsesReported() if self._round(event.round).is_reported:
                return event.report.clients, (pool, task, policy)
            case ResponsesReported():
                return self._round(event.round).cohort, (pool, task, policy)
            case RoundClosed():
                one = self._round(event.round)
                is_learned = not one.is_reported or self._learns_at_close
                return one.cohort, (task, policy) if is_learned else (task,)
            case Join() | Leave() | Describe():
                return event.clients, (pool, task)
            case SetAvailability():
                return event.offline, (pool,)
        return NO_CLIENTS, ()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Restore the state if anything within raises, an interrupt included."""
        self.check_idle()
        saved, rounds = {name: getattr(self, name) for name in PARTS}, list(self.rounds)
        undo = self._undo = list[Callable[[], None]]()
        try:
            yield
        except BaseException:
            if undo:
                for restore in reversed(undo):
                    restore()
                for name, value in saved.items():
                    setattr(self, name, value)
                self.rounds, self._views = Rounds(rounds), None
            raise
        finally:
            self._undo = None

    def check_idle(self) -> None:
        """Check that no call is being carried out: its policy or a signal handler made another."""
        if self._undo is not None:
            raise InvalidInput(
                "a policy, or a signal handler, called the scheduler in the middle of another of "
                "its calls; nothing was changed"
            )

    def _apply_opened(self, event: RoundOpened) -> None:
        task, pool, cohort, m = self.task, self.pool, event.cohort, event.target_responses
        is_available = pool.online[: pool.n].copy()
        is_available[event.busy] = False
        n_available = int(np.count_nonzero(is_available))
        self._add_rows()
        task.round = event.round
        task.invitations[cohort] += 1
        task.last_selected[cohort] = event.round
        task.cohort_response_rate = event.response_rate
        share = min(1.0, m / max(n_available, 1))
        task.fair_count = task.fair_count.copy()  # a new array, so that taking it back is exact
        task.fair_count[: pool.n] += share if n_available == pool.n else share * is_available
        self.rounds.add(
            Round.of(
                len(cohort),
                cohort=cohort,
                number=event.round,
                n_invited=event.n_invited,
                target_responses=m,
                n_available=n_available,
                deadline_s=np.nan if event.deadline_s is None else float(event.deadline_s),
                opened_s=event.now_s,
                is_timed=event.is_timed,
            ),
            keep=self.max_open_rounds,
        )
        self.selection = None
        if event.selection is not None and event.context is not None:
            self.selection = event.selection, event.context.available

    def _apply_responses(self, event: ResponsesReported) -> None:
        one, report, task = self.rounds.change(event.round), event.report, self.task
        if not one.is_reported and not len(report.invited):  # a journal does not repeat it
            report = replace(report, invited=one.cohort)
        at = one.positions(report.clients)
        one.outcome[at] = report.outcome
        one.latency_s[at] = report.latency_s
        one.loss[at] = report.loss
        one.late[at] = event.is_late
        self.rounds.settle(one, report.clients)
        self.pool.record(report, is_late=event.is_late)
        known = ~np.isnan(report.loss)
        task.last_loss[report.clients[known]] = report.loss[known]
        if event.is_late:
            task.dropped[report.clients[report.responded & report.dropped]] += 1
            task.participations[report.clients[report.usable]] += 1
            one.aggregated[at[report.usable]] = True
        one.is_reported = True
        self.policy.observe(self.policy_state, self.context(one), report)
        self.rounds.release(one, keep=self.max_open_rounds)

    def _apply_closed(self, event: RoundClosed) -> None:
        one, task = self.rounds.change(event.round), self.task
        was_open, fresh = one.is_open, one.fresh
        self.last_closed = one if was_open else None
        if not was_open:  # the credit is replaced
            task.participations[one.cohort[fresh & one.aggregated]] -= 1
        credited = np.zeros(len(one.cohort), dtype=bool)
        credited[one.positions(event.aggregated)] = True
        one.aggregated = np.where(fresh, credited, one.aggregated)
        task.participations[event.aggregated] += 1
        one.is_discarded = event.is_discarded
        one.status = CLOSED if event.is_automatic else CONFIRMED
        if was_open:
            if event.duration_s is not None:
                one.measured_s = event.duration_s
            self._close_policy(one, event)
        self.rounds.release(one, keep=self.max_open_rounds)

    def _close_policy(self, one: Round, event: RoundClosed) -> None:
        """Report a round without responses to the policy, and that the round has closed."""
        context, n_since = self.context(one), self.task.round - one.number
        if not one.is_reported:
            one.is_reported = True
            empty = RoundReport.of({}, invited=one.cohort, round=one.number, staleness=n_since)
            self.policy.observe(self.policy_state, context, empty)
        if self._learns_at_close:
            closed = ClosedRound(
                round=one.number,
                aggregated=event.aggregated,
                late=one.pending,
                discarded=event.is_discarded,
                duration_s=one.duration_s,
                closed_s=event.now_s,
            )
            self.policy.close(self.policy_state, context, closed)

    @property
    def _learns_at_close(self) -> bool:
        return type(self.policy).close is not Policy.close

    def _apply_joined(self, event: Join) -> None:
        start, stop = self.pool.n, self.pool.n + event.n_new
        if stop > len(self.pool.member):
            self._make_room(max(stop, 2 * start))
        pool, task, first = self.pool, self.task, self.task.round + 1
        self._views = None
        pool.n = stop
        task.joined[start:stop] = task.left[start:stop] = first
        back = event.clients[~pool.member[event.clients]]
        task.joined[back] += first - task.left[back]
        task.joined_late |= first > 1 and bool(event.n_new or len(back))
        for joined in (slice(start, stop), event.clients):
            pool.member[joined] = pool.online[joined] = True
            pool.last_seen[joined] = first
        pool.n_members += event.n_new + len(back)

    def _make_room(self, n: int) -> None:
        """Give pool and task n rows; those beyond the clients are spare."""
        pool, task = self._fresh_pool(n), TaskState.of(n)
        copy_rows(self.pool, pool)
        copy_rows(self.task, task)
        self.pool, self.task = pool, task

    def _fresh_pool(self, n: int) -> PoolState:
        return PoolState.of(n, self.pool.features.shape[1])

    def _apply_described(self, event: Describe) -> None:
        self._views = None
        for name, values in event.attributes.items():
            if name == "features" and not self.pool.features.shape[1]:
                shape = len(self.pool.member), values.shape[1]
                self.pool.features = np.full(shape, np.nan)
            getattr(self.pool, name)[event.clients] = values

    def _apply_left(self, event: Leave) -> None:
        self._views = None
        gone = event.clients[self.pool.member[event.clients]]
        self._note_last_seen(gone)
        self.pool.member[gone] = self.pool.online[gone] = False
        self.task.left[gone] = self.task.round + 1
        self.pool.n_members -= len(gone)

    def _note_last_seen(self, clients: IntArray) -> None:
        """Note the round in which clients that go offline now were online last."""
        self.pool.last_seen[clients[self.pool.online[clients]]] = self.task.round

    def _apply_abandoned(self, event: Abandon) -> None:
        is_named = np.zeros(self.pool.n, dtype=bool)
        is_named[event.clients] = True
        numbers = {n for k in event.clients.tolist() for n in self.rounds.pending_rounds(k)}
        for number in sorted(numbers):
            pending = self._round(number).pending
            self.rounds.abandon(number, pending[is_named[pending]], keep=self.max_open_rounds)

    def _apply_forgotten(self, event: Forget) -> None:
        kept = event.kept
        place = np.where(kept, np.cumsum(kept) - 1, -1)
        self._views = None
        self.policy_state = drop_rows(self.policy_state, kept[: self.n_rows], self.policy.init)
        self.n_rows = int(np.count_nonzero(kept[: self.n_rows]))
        self.pool = drop_rows(self.pool, kept, self._fresh_pool)
        self.task = drop_rows(self.task, kept, TaskState.of)
        self.pool.n = len(self.pool.member)
        self.pool.n_members = int(np.count_nonzero(self.pool.member))
        self.rounds = self.rounds.reindexed(place, keep=self.max_open_rounds)
        if self.selection is not None:
            self.selection = _reindexed(*self.selection, place)

    # --- another policy --------------------------------------------------------------------------

    def replace_policy(self, policy: Policy) -> None:
        """Go on with another policy, which starts from what is known of the clients.

        Its state is a fresh one that has observed one response of each client: its median latency
        and its last loss.
        """
        check_policy(policy)
        check_storable(policy.init)
        state, pool, task = policy.init(self.n_rows), self.pool, self.task
        known = pool.n_timed[: self.n_rows] > 0
        if policy.needs >= LOSS:
            known &= ~np.isnan(task.last_loss[: self.n_rows])
        if policy.needs >= SAMPLES:
            known &= ~np.isnan(pool.samples[: self.n_rows])
        clients = np.flatnonzero(known)
        if len(clients):
            median_s = np.exp(pool.log_latency[clients].astype(np.float64))
            report = RoundReport(
                round=task.round,
                clients=clients,
                outcome=np.full(len(clients), OK, dtype=np.int8),
                latency_s=np.clip(median_s, *LATENCY_RANGE),
                loss=task.last_loss[clients],
                samples=pool.samples[clients],
                invited=NO_CLIENTS,
            )
            policy.observe(state, self.context(), report)
        self.policy, self.policy_state, self.selection = policy, state, None


def _validated(policy: Policy, context: RoundContext, made: Any) -> Selection:
    """Return what a policy selected, sorted, after checking that it is a cohort."""
    selection = made if isinstance(made, Selection) else Selection(clients=made)
    try:
        given = np.asarray(selection.clients)
    except ValueError:  # lists of different lengths
        given = np.array([None])
    if given.size and given.dtype.kind not in "iu":
        raise InvalidInput(
            "the policy must select whole numbers from context.available, got "
            f"{validation.short(selection.clients)}"
        )
    chosen = np.sort(given.astype(np.int64), axis=None)
    most = min(context.n_invited, len(context.available))
    least = min(1, most) if policy.may_select_fewer else most
    away, is_twice = without(chosen, context.available), chosen[1:] == chosen[:-1]
    if is_twice.any() or not least <= len(chosen) <= most or len(away):
        n_wanted = most if least == most else f"{least} to {most}"
        away = np.unique(away).tolist()
        raise InvalidInput(
            f"the policy must select {n_wanted} distinct available clients, got "
            f"{selection.clients!r}"
            + (f", of which {validation.short(away)} are not available" if away else "")
        )
    return replace(selection, clients=chosen)


def _reindexed(
    selection: Selection, available: IntArray, place: IntArray
) -> tuple[Selection, IntArray] | None:
    """Return a selection, and who was available, with client k as place[k].

    None if a client that was available has no place any more: it was another selection then.
    """
    if np.any(place[available] < 0):
        return None
    moved = {
        name: place[getattr(selection, name)] for name in ("clients", "reserved", "candidates")
    }
    return replace(selection, **moved), place[available]
