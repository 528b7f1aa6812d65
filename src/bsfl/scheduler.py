"""The Scheduler: what a user holds."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bsfl import checks
from bsfl.errors import InvalidInput, NotSelected
from bsfl.monitor.events import Events, JournalLike, OnRound
from bsfl.monitor.monitored import Monitored
from bsfl.over_selection import Invite, check_invite, choose_enough
from bsfl.policies import Pace, Policy
from bsfl.policies.base import check_places, check_policy_object
from bsfl.randomness import stream
from bsfl.records import NOBODY, BoolArray, IntArray, Observation, Report, Roster, RoundContext
from bsfl.requirements import needs_of
from bsfl.saving import statefile
from bsfl.saving.saves import Saves
from bsfl.saving.snapshot import LARGEST_SEED, Snapshot, restored_snapshot
from bsfl.scheduling.answers import Id, judged, report_of
from bsfl.scheduling.clients import ClientId, ClientTable
from bsfl.scheduling.last_round import LastRound
from bsfl.scheduling.learned import Learned
from bsfl.scheduling.outstanding import Outstanding
from bsfl.scheduling.threads import ThreadLock, locked
from bsfl.state import State

_LOG = logging.getLogger("bsfl")
SWEEPS = 10
"""How often in `forget_after` rounds it is looked for clients to forget."""


class Scheduler(Monitored):
    """Chooses which clients train next and learns from how long they took.

    Clients are named by the caller's own ids, all str or all int. They join by being named in
    `available` (or through `join`), may leave and come back, and keep what was learned of them. A
    call that raises changes nothing. Several threads may use one scheduler.

    >>> scheduler = Scheduler(cohort_size=2)
    >>> cohort = scheduler.select(available=["ann", "bob", "cem", "dan"])
    >>> scheduler.observe({client: 3.2 for client in cohort})
    {}
    >>> scheduler.t, len(cohort)
    (1, 2)
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        cohort_size: int,
        invite: Invite = 1.0,
        forget_after: int | None = None,
        seed: int = 0,
        journal: JournalLike | None = None,
        on_round: OnRound | Iterable[OnRound] | None = None,
    ) -> None:
        """Start a scheduler that has met nobody.

        Args:
            policy: The selection rule; None: Pace(), which needs no setting.
            cohort_size: m, how many clients train in a round.
            invite: How many times cohort_size are chosen, of whom the first cohort_size that answer
                are enough (last_round.enough); or "auto": as many as it takes by their record.
            forget_after: Rounds after which a client that was not available in any of them is
                forgotten, or within a tenth more; None: never. Then a round costs what the living
                fleet costs, however many come and go.
            seed: Root of all randomness, at least 0.
            journal: A file, or a bsfl.monitor.Journal, that gets one line of JSON a round.
            on_round: A function, or several, that are given the record of every round when it is
                over: when enough have answered, all are reported, or the next one begins.
        """
        policy = Pace() if policy is None else policy
        check_policy_object(policy)
        self.policy = policy
        self.cohort_size = checks.natural("cohort_size", cohort_size)
        self.invite = check_invite(invite)
        if forget_after is not None:
            forget_after = checks.natural("forget_after", forget_after)
            check_places(policy)
        self.forget_after = forget_after
        self.seed = checks.natural("seed", seed, low=0, high=LARGEST_SEED)
        self.t = 0
        self._last: LastRound | None = None
        self._events = Events(journal, on_round)
        self._lock = ThreadLock()
        self._clients = ClientTable()
        self._saves = Saves()
        self._learned = Learned(policy)
        self._awaited = Outstanding()
        self._roster: Roster | None = None  # the fleet as it was when the last cohort was chosen
        self._unbooked: IntArray = NOBODY  # the last cohort, until its selection is in the state

    @property
    @locked
    def clients(self) -> list[ClientId]:
        """The ids of the clients that belong to the fleet now."""
        return [self._clients.ids[k] for k in self._clients.members()]

    @property
    @locked
    def outstanding(self) -> list[ClientId]:
        """The ids of the clients that were chosen and not reported yet."""
        return [self._clients.ids[k] for k in self._awaited]

    @property
    def state(self) -> State:
        """What the policy has learned; to be read, not changed."""
        return self._learned.state

    @locked
    def join(
        self,
        clients: Iterable[ClientId],
        *,
        samples: Sequence[float] | None = None,
        quality: Sequence[float] | None = None,
        features: npt.ArrayLike | None = None,
    ) -> None:
        """Add clients to the fleet, or update what is known of them.

        Args:
            clients: Distinct ids, of at most 1,000 characters.
            samples: How much data each one holds, above 0.
            quality: How good that data is, above 0 and at most 1; 1 where it is never told.
            features: What may tell how fast it is, one row of numbers for each client and the same
                features for all, NaN where unknown. BSFL(index=Lognormal()) uses them.
        """
        joined = self._clients.join(
            clients, t=self.t + 1, samples=samples, quality=quality, features=features
        )
        self._clients.column("seen")[joined.where] = self.t + 1

    def register(
        self,
        client: ClientId,
        *,
        samples: float | None = None,
        quality: float | None = None,
        features: Sequence[float] | None = None,
    ) -> None:
        """Add one client to the fleet, or update what is known of it."""
        told: dict[str, Any] = {"samples": samples, "quality": quality, "features": features}
        self.join([client], **{name: [it] for name, it in told.items() if it is not None})

    @locked
    def leave(self, clients: Iterable[ClientId]) -> None:
        """Take clients out of the fleet. What was learned is kept for their return."""
        self._clients.leave(clients, t=self.t + 1)

    @locked
    def rename(self, client: ClientId, name: ClientId) -> bool:
        """Call a client by another name, and keep all that is known of it.

        Returns:
            Whether that was possible: not if the name is, or was, that of another client.
        """
        return self._clients.rename(client, name)

    @locked
    def forget(self, clients: Iterable[ClientId]) -> None:
        """Take clients out of the fleet and forget what was learned of them.

        Nobody waits for their answers any more; if they come back, they are new.
        """
        check_places(self.policy)
        kept = np.ones(len(self._clients), dtype=bool)
        kept[self._clients.indices_of(clients)] = False
        self._keep(kept)

    @locked
    def select(
        self,
        available: Iterable[ClientId] | None = None,
        *,
        cohort_size: int | None = None,
        invite: Invite | None = None,
    ) -> list[Any]:
        """Start the next round and return its cohort.

        Args:
            available: Ids that can be chosen now; ids never seen join the fleet. None: all members.
            cohort_size: How many to choose in this round alone. None: the scheduler's own, times
                `invite`.
            invite: The same for this round alone. None: the scheduler's own.

        Returns:
            As many ids, or all available ones when there are fewer (then last_round.short). A
            policy such as FedCS may choose fewer.
        """
        t, m = self.t + 1, self.cohort_size
        if cohort_size is not None:
            m = checks.natural("cohort_size", cohort_size)
        elif invite is None:
            invite = self.invite
        if invite is not None:
            invite = check_invite(invite)
        enough = m if cohort_size is not None and invite is not None else min(m, self.cohort_size)
        joined = None if available is None else self._clients.locate(available, t=t, n_needed=m)
        unbooked, learned = self._unbooked, self._learned
        try:
            with learned.all_or_nothing(unbooked):
                self._clients.require(m)
                if len(unbooked):
                    self._report(self.t, {})
                learned.grow(len(self._clients))
                where = joined.where if joined else self._clients.members()
                context = self._context(t, where, m, enough, self._clients.roster())
                context, cohort = choose_enough(self._choose, context, learned.ledger, invite)
        except BaseException:
            self._unbooked = unbooked
            if joined:
                self._clients.undo(joined)
            raise
        self.t, self._roster, self._unbooked = t, context.roster, cohort
        learned.ledger.offer(where, context.quota)
        learned.ledger.invite(cohort, t)
        self._awaited.invite(t, cohort.tolist(), (context.cohort_size, context.quota))
        self._begin(LastRound.of(context, cohort))
        ids = [self._clients.ids[k] for k in cohort]
        if self.forget_after is not None:
            seen = self._clients.column("seen")
            seen[where] = t
            if t % -(-self.forget_after // SWEEPS) == 0:
                self._keep(seen >= t - self.forget_after)
        return ids

    def _choose(self, context: RoundContext) -> IntArray:
        return self._learned.choose(context, stream(self.seed, "policy", context.t))

    @locked
    def observe(
        self, answers: Mapping[Id, float | Observation], *, strict: bool = False
    ) -> dict[Id, str]:
        """Learn from clients that answered, or did not.

        May be called several times for one round, and after the next one has started: whoever was
        chosen and not reported yet is waited for; one that owes several answers gives the oldest
        first. Report timeouts and failures too; a client that is never reported counts as chosen,
        and nothing is learned of its speed.

        Answers are judged one by one. One with an impossible latency, or without what the policy
        needs of it, counts as failed; one that nobody waits for is passed over. Both are logged.

        Args:
            answers: For each client its latency in seconds, or an Observation.
            strict: Raise instead, and learn nothing.

        Returns:
            For each client whose answer was not taken as it came, why.
        """
        if not isinstance(answers, Mapping):
            raise InvalidInput(
                f"answers must map clients to latencies, got {checks.short(answers)}"
            )
        needs, samples = needs_of(self.policy), self._clients.column("samples")
        by_round, refused = judged(answers, self._owed, needs, samples, strict=strict)
        unbooked, reports = self._unbooked, []
        touched = np.array(list({*unbooked.tolist(), *chain(*by_round.values())}), dtype=np.int64)
        try:
            with self._learned.all_or_nothing(touched):
                for t, answered in sorted(by_round.items()):
                    reports.append((t, self._report(t, answered)))
        except BaseException:
            self._unbooked = unbooked
            raise
        for t, answered in by_round.items():
            for index in answered:
                self._awaited.settle(index, t)
        self._follow(reports)
        if refused:
            client, why = next(iter(refused.items()))
            counts = len(refused), len(answers)
            _LOG.warning("%d of %d answers refused, as %s: %s", *counts, checks.short(client), why)
        return refused

    @locked
    def abandon(self, clients: Iterable[ClientId] | None = None) -> None:
        """Stop waiting for answers that will never come, such as those to a server that was killed.

        The clients count as chosen, and nothing is learned of their speed.

        Args:
            clients: Who; one that owes nothing is passed over. None: everyone.
        """
        if clients is None:
            self._awaited.drop(self._awaited)
        else:
            self._awaited.drop(self._clients.indices_of(clients).tolist())

    def _owed(self, client: ClientId) -> tuple[int, int]:
        """Return the index of a client that owes an answer, and the oldest round it owes it to."""
        index = self._clients.index_of(client)
        oldest = self._awaited.oldest(index)
        if oldest is None:
            raise NotSelected(
                f"client {checks.short(client)} has no answer outstanding: it was not selected, or "
                "was reported already"
            )
        return index, oldest

    def _report(self, t: int, answered: Mapping[int, Observation]) -> Report:
        """Pass answers to round t on to the policy; the round's first report books its cohort."""
        chosen = self._unbooked if t == self.t else NOBODY
        size = self._awaited.size(t) or (self.cohort_size, self.cohort_size)
        context = self._context(t, NOBODY, *size, self._roster)
        samples = self._clients.column("samples")
        report = report_of(answered, chosen, self._roster, samples)
        self._learned.hear(context, report)
        if t == self.t:
            self._unbooked = NOBODY
        return report

    def _keep(self, kept: BoolArray) -> None:
        """Forget all clients but those that are kept; they move up."""
        if kept.all():
            return
        place = np.where(kept, np.cumsum(kept) - 1, -1)
        now, then = self._clients.roster(), self._roster
        self._learned.keep(kept)
        self._clients.forget(kept)
        self._roster = self._clients.roster() if then is now else then and then.kept(kept)
        self._unbooked = place[self._unbooked][kept[self._unbooked]]
        self._awaited = self._awaited.moved(place)
        self._last = self._last and self._last.moved(place)

    def save(self, path: str | os.PathLike[str], *, wait: bool = True) -> None:
        """Write everything to one file, atomically: a crash leaves the old file or the new one.

        One scheduler at a time writes a file: if another one has written it since this one has last
        saved or loaded it, FileInUse is raised and nothing is written.

        Args:
            path: The file.
            wait: Whether to return only when it is written. False copies what is known and has it
                written while you go on; of several that wait for one path only the newest is
                written, and an error comes with the next call, or when the program ends. `saved()`
                waits for it.
        """
        with self._lock:
            self._saves.save(self._snapshot(), Path(path).absolute(), wait=wait)

    def saved(self) -> None:
        """Return when everything that `save(wait=False)` was asked for is written."""
        self._saves.wait()

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            policy=self.policy,
            cohort_size=self.cohort_size,
            invite=self.invite,
            forget_after=self.forget_after,
            seed=self.seed,
            t=self.t,
            last=self._last,
            unbooked=self._unbooked,
            clients=self._clients,
            learned=self._learned,
            roster=self._roster,
            awaited=self._awaited,
        )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        journal: JournalLike | None = None,
        on_round: OnRound | Iterable[OnRound] | None = None,
    ) -> Self:
        """Return the scheduler that `save` wrote.

        Args:
            path: The file.
            policy: The policy to go on with. Needed when it was a class or had functions of your
                own, which a file cannot hold; otherwise it replaces the saved settings, all but
                those that say how answers are remembered.
            journal: As in Scheduler; a file does not hold it.
            on_round: As in Scheduler; a file does not hold it.
        """
        path = Path(path).absolute()
        stamp = statefile.stamp_of(path)
        header, arrays = statefile.read(path)
        saved = restored_snapshot(header, arrays, path, policy)
        settings = {k: getattr(saved, k) for k in ("cohort_size", "invite", "forget_after", "seed")}
        scheduler = cls(saved.policy, **settings, journal=journal, on_round=on_round)
        scheduler._saves.loaded(path, stamp)
        scheduler.t, scheduler._clients, scheduler._learned = saved.t, saved.clients, saved.learned
        scheduler._roster, scheduler._awaited = saved.roster, saved.awaited
        scheduler._unbooked, scheduler._last = saved.unbooked, saved.last
        return scheduler
