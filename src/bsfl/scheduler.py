"""The Scheduler: an engine with the caller's ids, a lock, a clock and files."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl._core.attributes import clean_attributes, encode_features
from bsfl._core.clients import ClientIds, Id, validate_responses
from bsfl._core.engine import Engine
from bsfl._core.events import (
    Abandon,
    CloseRound,
    Command,
    Describe,
    Forget,
    Join,
    Leave,
    OpenRound,
    Respond,
    SetAvailability,
)
from bsfl._core.rounds import Round
from bsfl.errors import InvalidInput
from bsfl.monitoring import table
from bsfl.monitoring.effect import Effect, scheduler_effect
from bsfl.monitoring.explain import Explanation, explain
from bsfl.monitoring.publisher import Batch, JournalLike, OnRound, Publisher
from bsfl.monitoring.stream import events_after, replaying, settings_entry, settings_of
from bsfl.monitoring.table import ClientRows
from bsfl.persistence import snapshot
from bsfl.persistence.writer import StateFiles, warn_of_other_writer
from bsfl.policies import Pace, Policy
from bsfl.policy import check_forgettable
from bsfl.types import (
    BoolArray,
    ClientId,
    Cohort,
    IntArray,
    Observation,
    OverSelection,
    RoundPlan,
    RoundRecord,
    State,
)

_LOG = logging.getLogger("bsfl")
SWEEPS = 10
"""How often in `forget_after` rounds the scheduler looks for clients to forget."""
MAX_SEED = 2**256
"""Seeds may be as large as a random number of any generator."""

Features = npt.ArrayLike | Sequence[Mapping[str, str | float]]
RoundLike = Cohort | int


class CopyableLock:
    """A lock that one thread may take several times; copies and forked processes have their own."""

    def __init__(self) -> None:
        self._renew()

    def __reduce__(self) -> tuple[type["CopyableLock"], tuple[()]]:
        return CopyableLock, ()

    def __enter__(self) -> None:
        if self._pid != os.getpid():  # a thread of the parent may have held it
            self._renew()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock, self._pid = threading.RLock(), os.getpid()


class Scheduler:
    """Selects which clients train next and learns from how long they took.

    Clients are named by the caller's own ids, all str or all int. They join by being named in
    `available` (or through `join`), may leave and come back, and keep what was learned of them. A
    call that raises changes nothing. Several threads may use one scheduler.

    >>> scheduler = Scheduler(cohort_size=2)
    >>> cohort = scheduler.select(available=["ann", "bob", "cem", "dan"])
    >>> scheduler.observe({client: 3.2 for client in cohort}, round=cohort)
    {}
    >>> scheduler.round, len(cohort), scheduler.pending()
    (1, 2, [])
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        cohort_size: int,
        over_selection: OverSelection = 1.0,
        deadline_s: float | None = None,
        min_responses: int = 0,
        late: Literal["apply", "drop"] = "apply",
        max_staleness: int | None = None,
        lifetime_s: float | None = None,
        max_open_rounds: int = 1,
        forget_after: int | None = None,
        seed: int = 0,
        journal: JournalLike | None = None,
        on_round: OnRound | Iterable[OnRound] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start a scheduler without clients.

        Args:
            policy: The selection rule; None: Pace(), which needs no setting.
            cohort_size: m, the target responses: how many responses close a round.
            over_selection, min_responses, late, max_staleness: As in RoundPlan.
            deadline_s: Seconds after which a round should close without the missing responses.
                The scheduler does not wait: the caller closes the round.
            lifetime_s: Seconds for which a client in flight is not selected again. None: `select`
                does not leave clients in flight out.
            max_open_rounds: How many rounds may be open; at the limit `select` closes the oldest.
            forget_after: Rounds after which a client that was not available in any of them is
                forgotten, or within a tenth more; None: never.
            seed: Root of all randomness, at least 0.
            journal: A file, or a bsfl.monitoring.Journal, that gets every event as a line of JSON.
            on_round: A function, or several, that are called with the record of every round that
                closes.
            clock: Returns seconds; read once a call. A caller whose `now_s` are on a clock of its
                own passes that clock, too: files and journals hold ages by it.
        """
        plan = RoundPlan(
            target_responses=validation.natural("cohort_size", cohort_size),
            over_selection=over_selection,
            deadline_s=deadline_s,
            min_responses=min_responses,
            late=late,
            max_staleness=max_staleness,
            lifetime_s=lifetime_s,
        )
        if forget_after is not None:
            forget_after = validation.natural("forget_after", forget_after)
            check_forgettable(policy)
        self._engine = Engine(
            Pace() if policy is None else policy,
            plan,
            seed=validation.natural("seed", seed, low=0, high=MAX_SEED),
            max_open_rounds=max_open_rounds,
        )
        self.forget_after = forget_after
        self._ids = ClientIds()
        self._feature_columns: list[str] = []  # of features that were given as dicts
        self._seq = 0  # of the last event
        self._shift_s = 0.0  # of the clock against that of files and journals
        self._clock, self._lock, self._files = clock, CopyableLock(), StateFiles()
        self._publisher = Publisher(journal, on_round)

    # --- settings and queries --------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The selection rule."""
        return self._engine.policy

    @property
    def plan(self) -> RoundPlan:
        """The numbers of a round."""
        return self._engine.plan

    @plan.setter
    def plan(self, plan: RoundPlan) -> None:
        if not isinstance(plan, RoundPlan):
            raise InvalidInput(f"plan must be a RoundPlan, got {validation.short(plan)}")
        self._set("plan", plan)

    def _set(self, name: str, value: Any) -> None:
        with self._call() as call:
            setattr(self._engine, name, value)
            call.note(settings_entry(self._engine))

    @property
    def cohort_size(self) -> int:
        """m, how many responses close a round."""
        return self.plan.target_responses

    @cohort_size.setter
    def cohort_size(self, cohort_size: int) -> None:
        target_responses = validation.natural("cohort_size", cohort_size)
        self.plan = replace(self.plan, target_responses=target_responses)

    @property
    def over_selection(self) -> OverSelection:
        """How many clients are invited per target response, or "auto"."""
        return self.plan.over_selection

    @over_selection.setter
    def over_selection(self, over_selection: OverSelection) -> None:
        self.plan = replace(self.plan, over_selection=over_selection)

    @property
    def max_open_rounds(self) -> int:
        """How many rounds may be open at a time."""
        return self._engine.max_open_rounds

    @max_open_rounds.setter
    def max_open_rounds(self, max_open_rounds: int) -> None:
        self._set("max_open_rounds", validation.natural("max_open_rounds", max_open_rounds))

    @property
    def seed(self) -> int:
        """Root of all randomness."""
        return self._engine.seed

    @property
    def round(self) -> int:
        """The number of the last round that was opened; 0 before the first."""
        return self._engine.task.round

    @property
    def state(self) -> State:
        """What the policy has learned; to be read, not changed."""
        return self._engine.policy_state

    @property
    def clients(self) -> list[Any]:
        """The ids of the clients that are members now."""
        with self._lock:
            pool = self._engine.pool
            return [self._ids.names[k] for k in np.flatnonzero(pool.member[: pool.n])]

    @property
    def in_flight(self) -> list[Any]:
        """The ids of the clients with a pending response."""
        with self._lock:
            return [self._ids.names[k] for k in self._engine.rounds.in_flight]

    @property
    def last_round(self) -> RoundRecord | None:
        """What is known of the last round by now; None before the first."""
        with self._lock:
            latest = self._engine.rounds.latest
            return None if latest is None else latest.record(self._ids.names)

    def pending(self) -> list[Cohort]:
        """Return the open rounds, oldest first, also after a restart."""
        with self._lock:
            return [self._cohort(one) for one in self._engine.rounds.open()]

    def _cohort(self, one: Round) -> Cohort:
        names = self._ids.names
        return Cohort(
            [names[k] for k in one.cohort.tolist()],
            round=one.number,
            n_invited=one.n_invited,
            target_responses=one.target_responses,
            deadline_s=None if np.isnan(one.deadline_s) else one.deadline_s,
            opened_s=one.opened_s,
            pending=[names[k] for k in one.pending.tolist()],
        )

    # --- clients ---------------------------------------------------------------------------------

    def join(
        self,
        clients: Iterable[ClientId],
        *,
        samples: Sequence[float] | None = None,
        quality: Sequence[float] | None = None,
        features: Features | None = None,
    ) -> None:
        """Add clients, or update their attributes; all of them come online.

        Args:
            clients: Distinct ids, of at most 1,000 characters.
            samples: How much data each one holds, above 0.
            quality: How good that data is, above 0 and at most 1; 1 where it is not given.
            features: What may predict how fast it is: a row of numbers for each client, NaN where
                unknown, or a dict of numbers and texts; rows for all clients, or dicts for all.
                BSFL(index=Lognormal()) uses them.
        """
        with self._call() as call:
            names = self._ids.clean(clients)
            columns = self._feature_columns
            are_dicts = features is not None and _are_dicts(features)
            n_features = self._engine.pool.features.shape[1]
            if features is not None and names and n_features and are_dicts != bool(columns):
                form = "dicts" if columns else "rows of numbers"
                raise InvalidInput(
                    f"every client must have the same {n_features} features, given as {form}"
                )
            if are_dicts:
                features, columns = encode_features(features, columns)  # type: ignore[arg-type]
            attributes = clean_attributes(
                len(names), samples=samples, quality=quality, features=features
            )
            known, new = self._ids.find(names)
            self._ids.append(new)
            call(Join(n_new=len(new), clients=known))
            if attributes and names:
                call(Describe(clients=self._ids.indices_of(names), attributes=attributes))
            if columns is not self._feature_columns:
                call.note({"kind": "features", "columns": columns})
                self._feature_columns = columns

    def register(
        self,
        client: ClientId,
        *,
        samples: float | None = None,
        quality: float | None = None,
        features: Sequence[float] | Mapping[str, str | float] | None = None,
    ) -> None:
        """Add one client, or update its attributes."""
        given: dict[str, Any] = {"samples": samples, "quality": quality, "features": features}
        self.join([client], **{name: [x] for name, x in given.items() if x is not None})

    def leave(self, clients: Iterable[ClientId]) -> None:
        """Take clients out. What was learned is kept for their return."""
        with self._call() as call:
            call(Leave(clients=self._ids.indices_of(clients)))

    def online(self, clients: Iterable[ClientId]) -> None:
        """Make clients available for selection; unknown ones join."""
        with self._call() as call:
            where, new = self._ids.find(clients)
            self._join_missing(call, where, new)
            call(SetAvailability(online=where))

    def offline(self, clients: Iterable[ClientId]) -> None:
        """Make clients unavailable for selection; they stay members."""
        with self._call() as call:
            call(SetAvailability(offline=self._ids.indices_of(clients)))

    def rename(self, client: ClientId, name: ClientId) -> bool:
        """Give a client another id and keep all that is known of it.

        Returns:
            Whether that was possible: not if a client has this id.
        """
        with self._call() as call:
            index = self._ids.index_of(client)
            was, done = self._ids.names[index], self._ids.rename(client, name)
            if done:
                call.note({"kind": "renamed", "client": was, "name": self._ids.names[index]})
            return done

    def forget(self, clients: Iterable[ClientId]) -> None:
        """Take clients out and forget what was learned of them.

        Their pending responses are abandoned; if they come back, they are new.
        """
        with self._call() as call:
            check_forgettable(self.policy)
            kept = np.ones(len(self._ids), dtype=bool)
            kept[self._ids.indices_of(clients)] = False
            self._forget(call, kept)

    def _forget(self, call: "_Call", kept: BoolArray) -> None:
        if not kept.all():
            numbers = [one.number for one in self._engine.rounds.open()]
            call(Forget(kept=kept))
            self._ids.keep(kept)
            for number in numbers:  # all that it waited for may be forgotten
                self._close_if_complete(call, number)

    def _join_missing(self, call: "_Call", where: IntArray, new: list[Any]) -> None:
        """Let clients join that are new or were away."""
        back = where[~self._engine.pool.member[where]]
        if len(back) or new:
            self._ids.append(new)
            call(Join(n_new=len(new), clients=back))

    # --- rounds ----------------------------------------------------------------------------------

    def select(
        self,
        available: Iterable[ClientId] | None = None,
        *,
        cohort_size: int | None = None,
        over_selection: OverSelection | None = None,
        deadline_s: float | None = None,
        now_s: float | None = None,
    ) -> Cohort:
        """Open the next round and return its cohort.

        At the limit of open rounds the oldest one closes first.

        Args:
            available: Ids that can be selected from now on, until the next change; unknown ids
                join. None: the clients that are online.
            cohort_size: Target responses of this round alone; None: the scheduler's own.
            over_selection, deadline_s: Likewise.
            now_s: The caller's time; None: the scheduler reads its clock. If given here and to
                `close`, the difference is the duration of the round.

        Returns:
            The ids of the cohort: as many as are invited, or all available ones when there are
            fewer. A policy such as FedCS may select fewer.
        """
        if cohort_size is not None:
            cohort_size = validation.natural("cohort_size", cohort_size)
        if over_selection is not None:
            over_selection = validation.over_selection(over_selection)
        if deadline_s is not None:
            deadline_s = validation.seconds("deadline_s", deadline_s)
        with self._call(now_s) as call:
            for number in self._engine.rounds_beyond_limit():
                call(CloseRound(round=number, is_automatic=True))
            if available is not None:
                self._replace_available(call, available)
            call(
                OpenRound(
                    target_responses=cohort_size,
                    over_selection=over_selection,
                    deadline_s=deadline_s,
                )
            )
            latest = self._engine.rounds.latest
            assert latest
            cohort = self._cohort(latest)
            if not cohort:  # no client was available
                call(CloseRound(round=latest.number, is_automatic=True))
            self._forget_absent(call, latest.number)
        return cohort

    def _replace_available(self, call: "_Call", available: Iterable[ClientId]) -> None:
        where, new = self._ids.find(available)
        n_before = self._engine.n_clients
        self._join_missing(call, where, new)
        pool = self._engine.pool
        wanted = np.zeros(pool.n, dtype=bool)
        wanted[where] = True
        wanted[n_before:] = True
        changed = np.flatnonzero(wanted != pool.online[: pool.n])
        if len(changed):
            comes = wanted[changed]
            call(SetAvailability(online=changed[comes], offline=changed[~comes]))

    def _forget_absent(self, call: "_Call", number: int) -> None:
        """Forget clients that have been neither online nor in flight for `forget_after` rounds."""
        if self.forget_after is None or number % -(-self.forget_after // SWEEPS):
            return
        pool = self._engine.pool
        was_seen = pool.last_seen[: pool.n] >= number - self.forget_after
        self._forget(call, was_seen | pool.online[: pool.n])

    def observe(
        self,
        responses: Mapping[Id, float | Observation],
        *,
        round: RoundLike | None = None,  # noqa: A002
        strict: bool = False,
        now_s: float | None = None,
    ) -> dict[Id, str]:
        """Learn from clients that responded, or did not.

        May be called several times for one round, and after it has closed. Responses of one call
        arrive together: if they reach the target, all of them are fresh, and the round closes.
        Report timeouts and failures too; a client that is never reported counts as invited, and
        nothing is learned of its speed.

        Responses are validated one by one. One with an impossible latency, or without what the
        policy needs, counts as failed; one without a pending invitation is ignored. Both are
        logged.

        Args:
            responses: For each client its latency in seconds, or an Observation.
            round: The cohort, or the number of the round, that the clients respond to. None: for
                each client the latest round in which it is pending.
            strict: Raise for the first rejected response, and learn nothing.
            now_s: The caller's time; None: the scheduler reads its clock.

        Returns:
            For each client whose response was rejected, why.
        """
        if not isinstance(responses, Mapping):
            raise InvalidInput(
                f"responses must map clients to latencies, got {validation.short(responses)}"
            )
        with self._call(now_s) as call:
            number = None if round is None else self._number(round)
            by_round, rejected = validate_responses(
                self._engine, self._ids, responses, number, strict=strict
            )
            one = None if number is None else self._engine.rounds.get(number)
            if one is not None and not responses and not one.is_reported:
                call(Respond(round=one.number, report={}))  # the policy learns who was invited
            for known, observations in sorted(by_round.items()):
                call(Respond(round=known, report=observations))
                self._close_if_complete(call, known)
        if rejected:
            client, why = next(iter(rejected.items()))
            example = f"{validation.short(client)}: {why}"
            counts = len(rejected), len(responses)
            _LOG.warning("%d of %d responses rejected, such as %s", *counts, example)
        return rejected

    def _close_if_complete(self, call: "_Call", number: int) -> None:
        one = self._engine.rounds.get(number)
        if one is not None and one.is_open and one.is_complete:
            call(CloseRound(round=number, is_automatic=True))

    def close(
        self,
        round: RoundLike | None = None,  # noqa: A002
        *,
        aggregated: Iterable[ClientId] | None = None,
        discard: bool = False,
        now_s: float | None = None,
    ) -> None:
        """Close a round; later responses to it are late.

        A round that has closed by itself may be closed once more, to replace who is credited.

        Args:
            round: The cohort, or the number of the round; None: the latest.
            aggregated: The clients whose fresh responses entered the model; they are credited with
                a participation. None: all with a fresh response.
            discard: Whether the round changed no model; no client is credited then.
            now_s: The caller's time; None: the scheduler reads its clock.
        """
        with self._call(now_s) as call:
            number = self.round if round is None else self._number(round)
            if number == 0:
                raise InvalidInput("no round has been opened; call select first")
            one = self._engine.rounds.get(number)
            clients = None if aggregated is None else self._ids.indices_of(aggregated)
            if discard and clients is not None and len(clients):
                raise InvalidInput("a discarded round has no aggregated clients")
            is_open = one is not None and one.is_open
            if is_open or discard or clients is not None:
                call(CloseRound(round=number, aggregated=clients, discard=discard))

    def abandon(self, clients: Iterable[ClientId] | None = None) -> None:
        """Stop waiting for responses that will never come, such as those to a killed server.

        The clients count as invited, and nothing is learned of their speed.

        Args:
            clients: Ids; one without a pending response is ignored. None: all.
        """
        with self._call() as call:
            rounds = self._engine.rounds
            where = rounds.in_flight if clients is None else self._ids.indices_of(clients).tolist()
            numbers = sorted({n for k in where for n in rounds.pending_rounds(k)})
            if numbers:
                call(Abandon(clients=np.array(where, dtype=np.int64)))
            for number in numbers:
                self._close_if_complete(call, number)

    def _number(self, round: RoundLike) -> int:  # noqa: A002
        """Return the number of a round that was opened."""
        number = validation.natural("round", round.round if isinstance(round, Cohort) else round)
        if number > self.round:
            raise InvalidInput(f"round {number} was never opened; call select first")
        return number

    # --- one call --------------------------------------------------------------------------------

    @contextmanager
    def _call(self, now_s: float | None = None) -> Iterator["_Call"]:
        """Carry out commands together or not at all; publish their events when all are done."""
        if now_s is not None:
            now_s = validation.finite("now_s", now_s)
        with self._lock:
            call = _Call(self, now_s)
            names, n = self._ids.names, len(self._ids)
            try:
                with self._engine.transaction():
                    yield call
                    seq, self._seq = self._seq, self._seq + call.n_events
            except BaseException:
                self._ids.restore(names, n)
                raise
            if call.batch:
                call.batch.commit(seq, time.time(), call.clock_s, self._shift_s)
        if call.batch:
            call.batch.publish()

    # --- what is known ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        n = self._engine.pool.n_members
        return f"<Scheduler with {self.policy!r}, {n:,} clients, round {self.round:,}>"

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return what is known in a few lines: clients, speed, pending responses, fairness."""
        with self._lock:
            title = f"{self.policy!r}, cohorts of {self.cohort_size:,}, round {self.round:,}"
            return table.summary(title, self._engine, self._ids.names)

    def table(self) -> ClientRows:
        """Return one row for every client, in the order of joining; see bsfl.monitoring.COLUMNS.

        A list of dicts; `.to_frame()` makes a pandas table of it.
        """
        with self._lock:
            return table.rows(self._engine, self._ids.names)

    def client(self, client: ClientId) -> dict[str, Any]:
        """Return the row of one client in `table`, without building the table."""
        with self._lock:
            index = self._ids.index_of(client)
            return table.rows(self._engine, self._ids.names, np.array([index]))[0]

    def explain(self, client: ClientId) -> Explanation:
        """Return why a client was selected in the last round, or not; print it.

        Pace and BSFL can tell; of other policies it says no more than who was available and
        selected.

        Args:
            client: Its id.
        """
        with self._lock:
            return explain(self._engine, self._ids.index_of(client), self._ids.names)

    def diagnostics(self) -> dict[str, float]:
        """Return what the policy has learned by name, such as the weight of BSFL."""
        with self._lock:
            return self._engine.diagnostics()

    def effect(self) -> Effect:
        """Return what the first policy of `Alternating` changes against the second; print it."""
        with self._lock:
            return scheduler_effect(self._engine)

    def write_journal(self, journal: JournalLike) -> None:
        """Write events to this journal from now on; see Scheduler."""
        with self._lock:
            self._publisher.write_journal(journal)

    def publish_like(self, other: "Scheduler") -> None:
        """Publish events where another scheduler does: in its journal and to its callbacks."""
        with self._lock:
            self._publisher = other._publisher

    # --- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, wait: bool = True) -> None:
        """Write everything to one file, atomically: a crash leaves the old file or the new one.

        One process at a time writes a file: FileInUse is raised, and nothing is written, if
        another one has written it since this scheduler saved or loaded it, or writes it now.

        Args:
            path: The file.
            wait: Whether to return only when it is written. False copies the state and writes it
                while the rounds go on; of several writes that wait for one path only the newest is
                carried out, and an error comes with the next call. `saved()` waits for it.
        """
        with self._lock:
            self._engine.check_idle()
            contents = snapshot.contents(self)
            names, n = self._ids.names, len(self._ids)
            self._files.save(Path(path).absolute(), *contents, names, n, wait=wait)

    def saved(self) -> None:
        """Return when everything that `save(wait=False)` was asked for is written."""
        self._files.wait()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        cohort_size: int | None = None,
        over_selection: OverSelection | None = None,
        journal: JournalLike | None = None,
        on_round: OnRound | Iterable[OnRound] | None = None,
        clock: Callable[[], float] = time.monotonic,
        read_only: bool = False,
    ) -> Self:
        """Return the scheduler that `save` wrote.

        Args:
            path: The file.
            policy: The policy to go on with. Needed when it was a class or had functions of your
                own, which a file cannot hold. Another policy starts from what is known of the
                clients.
            cohort_size, over_selection: New settings; None: as saved.
            journal, on_round, clock: As in Scheduler; a file does not hold them.
            read_only: Whether the scheduler will not be saved to the file: no warning is logged
                if another process that still runs saves it.
        """
        if not read_only:
            warn_of_other_writer(Path(path).absolute())
        scheduler = snapshot.load(cls, Path(path).absolute(), policy, clock)
        scheduler._publisher = Publisher(journal, on_round)
        if cohort_size is not None:
            scheduler.cohort_size = cohort_size
        if over_selection is not None:
            scheduler.over_selection = over_selection
        return scheduler

    @classmethod
    def replay(
        cls,
        journal: str | os.PathLike[str],
        *,
        start: str | os.PathLike[str],
        policy: Policy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Return the scheduler as it was after the last event of a journal; `select` is not called.

        Args:
            journal: The file; it must hold every event since the state file was saved, changes of
                availability included: `Journal(path, availability=True)`.
            start: A state file.
            policy: As in `load`.
            clock: As in Scheduler.
        """
        scheduler = cls.load(start, policy=policy, clock=clock, read_only=True)
        scheduler._replay(journal)
        return scheduler

    def _replay(self, journal: str | os.PathLike[str]) -> None:
        with self._lock:
            clock_s = self._clock() - self._shift_s
            for one in self._engine.rounds:
                one.opened_s -= self._shift_s
            for entry, event in events_after(journal, self._seq, self._ids):
                with replaying(journal, entry):
                    if event is not None:
                        self._engine.apply(event)
                    elif entry["kind"] == "settings":
                        self._engine.plan, self._engine.max_open_rounds = settings_of(entry)
                    elif entry["kind"] == "features":
                        self._feature_columns = entry["columns"]
                    clock_s = validation.finite("clock_s", entry["clock_s"])
                self._seq = entry["seq"]
            self._shift_s = self._clock() - clock_s  # rounds are as old as at the last event
            for one in self._engine.rounds:
                one.opened_s += self._shift_s


class _Call:
    """The commands of one call, carried out one after the other, and their events."""

    def __init__(self, scheduler: Scheduler, now_s: float | None) -> None:
        self._scheduler, self.n_events = scheduler, 0
        self.clock_s = scheduler._clock()
        self._now_s = self.clock_s if now_s is None else now_s
        self._is_timed = now_s is not None
        publisher = scheduler._publisher
        is_read = publisher.journal or publisher.callbacks or _LOG.isEnabledFor(logging.INFO)
        self.batch = Batch(publisher) if is_read else None

    def __call__(self, command: Command) -> Any:
        """Carry out a command and return its event."""
        engine, names = self._scheduler._engine, self._scheduler._ids.names
        event = engine.decide(command, self._now_s, is_timed=self._is_timed)
        engine.apply(event)
        self.n_events += 1
        if self.batch:
            self.batch.add(event, engine, names)
        return event

    def note(self, entry: dict[str, Any]) -> None:
        """Publish what is no event of the engine."""
        self.n_events += 1
        if self.batch:
            self.batch.note(entry)


def _are_dicts(features: Any) -> bool:
    return isinstance(features, Sequence) and bool(features) and isinstance(features[0], Mapping)
