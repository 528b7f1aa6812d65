"""The Scheduler: what a user holds."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bsfl import checks, statefile
from bsfl.background import BackgroundWriter
from bsfl.clients import ClientId, ClientTable
from bsfl.errors import InvalidInput, NotAStateFile, NotSelected
from bsfl.estimation.ledger import Ledger
from bsfl.migrations import SCHEMA, migrated
from bsfl.over_selection import Invite, check_invite, choose_enough
from bsfl.policies import Pace, Policy
from bsfl.policies.base import checked_cohort
from bsfl.randomness import stream
from bsfl.records import NOBODY, IntArray, Observation, Report, Roster, RoundContext, RoundRecord
from bsfl.saved_policy import described, policy_of
from bsfl.state import State, leaves, restored, take_over


class Scheduler:
    """Chooses which clients train next and learns from how long they took.

    Clients are named by the caller's own ids, all str or all int. They join by being named in
    `available` (or through `join`), may leave and come back, and keep what was learned of them.

    >>> scheduler = Scheduler(cohort_size=2)
    >>> cohort = scheduler.select(available=["ann", "bob", "cem", "dan"])
    >>> scheduler.observe({client: 3.2 for client in cohort})
    >>> scheduler.t, len(cohort)
    (1, 2)
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        cohort_size: int,
        invite: Invite = 1.0,
        seed: int = 0,
    ) -> None:
        """Start a scheduler that has met nobody.

        Args:
            policy: The selection rule; None: Pace(), which needs no setting.
            cohort_size: m, how many clients train in a round.
            invite: How many times cohort_size are chosen, of whom the first cohort_size that answer
                are enough (last_round.enough); or "auto": as many as it takes by their record.
            seed: Root of all randomness, at least 0.
        """
        policy = Pace() if policy is None else policy
        if not isinstance(policy, Policy) or isinstance(policy, type):
            raise InvalidInput(f"policy must have init, select and observe, got {policy!r}")
        self.policy = policy
        self.cohort_size = checks.natural("cohort_size", cohort_size)
        check_invite(invite)
        self.invite = invite
        self.seed = checks.natural("seed", seed, low=0)
        self.t = 0
        self.last_round: RoundRecord | None = None
        self._clients = ClientTable()
        self._writer = BackgroundWriter()
        self._spare: statefile.Arrays = {}
        self._state: State = policy.init(0)
        self._ledger = Ledger.of(0)
        self._n_state = 0
        self._waiting: dict[int, list[int]] = {}  # by client: rounds not answered, oldest first
        self._sizes: dict[int, tuple[int, int]] = {}  # by round: how many were asked, are enough
        self._roster: Roster | None = None  # the fleet as it was when the last cohort was chosen
        self._unbooked: IntArray = NOBODY  # the last cohort, until its selection is in the state

    @property
    def clients(self) -> list[ClientId]:
        """The ids of the clients that belong to the fleet now."""
        return [self._clients.ids[k] for k in self._clients.members()]

    @property
    def outstanding(self) -> list[ClientId]:
        """The ids of the clients that were chosen and not reported yet."""
        return [self._clients.ids[k] for k in self._waiting]

    @property
    def state(self) -> State:
        """What the policy has learned; to be read, not changed."""
        return self._state

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
            clients: Distinct ids.
            samples: How much data each one holds, above 0.
            quality: How good that data is, above 0 and at most 1; 1 where it is never told.
            features: What may tell how fast it is, one row of numbers for each client and the same
                features for all, NaN where unknown. BSFL(index=Lognormal()) uses them.
        """
        self._clients.join(
            clients, t=self.t + 1, samples=samples, quality=quality, features=features
        )

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

    def leave(self, clients: Iterable[ClientId]) -> None:
        """Take clients out of the fleet. What was learned is kept for their return."""
        self._clients.leave(clients, t=self.t + 1)

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
            check_invite(invite)
        enough = m if cohort_size is not None and invite is not None else min(m, self.cohort_size)
        joined = None if available is None else self._clients.locate(available, t=t, n_needed=m)
        before = self._state, self._ledger, self._n_state
        try:
            self._clients.require(m)
            if len(self._unbooked):
                self._report(self.t, {})
            self._grow_state()
            where = joined.where if joined else self._clients.members()
            context = self._context(t, where, m, enough)
            context, cohort = choose_enough(self._choose, context, self._ledger, invite)
        except Exception:
            self._state, self._ledger, self._n_state = before
            if joined:
                self._clients.undo(joined)
            raise
        self.t, self._roster, self._unbooked = t, context.roster, cohort
        self._ledger.offer(where, context.quota)
        for k in cohort.tolist():
            self._waiting.setdefault(k, []).append(t)
        self._sizes[t] = context.cohort_size, context.quota
        ids = [self._clients.ids[k] for k in cohort]
        self.last_round = RoundRecord(
            t=t,
            cohort=tuple(ids),
            cohort_size=context.cohort_size,
            enough=context.quota,
            n_available=len(where),
        )
        return ids

    def _choose(self, context: RoundContext) -> IntArray:
        cohort = self.policy.select(self._state, context, stream(self.seed, "policy", context.t))
        return checked_cohort(self.policy, context, cohort)

    def observe(
        self, answers: Mapping[ClientId, float | Observation], *, strict: bool = True
    ) -> None:
        """Learn from clients that answered, or did not.

        May be called several times for one round, and after the next one has started: whoever was
        chosen and not reported yet is waited for; one that owes several answers gives the oldest
        first. Report timeouts and failures too; a client that is never reported counts as chosen,
        and nothing is learned of its speed.

        Args:
            answers: For each client its latency in seconds, or an Observation.
            strict: Whether an answer nobody waits for is an error; otherwise it is ignored.
        """
        if not isinstance(answers, Mapping):
            raise InvalidInput(f"answers must map clients to latencies, got {answers!r}")
        by_round: dict[int, dict[int, Observation]] = {}
        for client, answer in answers.items():
            try:
                index = self._awaited(client)
            except InvalidInput:
                if strict:
                    raise
                continue
            oldest = self._waiting[index][0]
            by_round.setdefault(oldest, {})[index] = _observation(client, answer)
        for t, answered in sorted(by_round.items()):
            self._report(t, answered)
            for index in answered:
                self._waiting[index].remove(t)
                if not self._waiting[index]:
                    del self._waiting[index]
        self._forget_sizes()

    def abandon(self, clients: Iterable[ClientId] | None = None) -> None:
        """Stop waiting for answers that will never come, such as those to a server that was killed.

        The clients count as chosen, and nothing is learned of their speed.

        Args:
            clients: Who; one that owes nothing is passed over. None: everyone.
        """
        if clients is None:
            self._waiting.clear()
        else:
            for index in [self._clients.index_of(client) for client in clients]:
                self._waiting.pop(index, None)
        self._forget_sizes()

    def _forget_sizes(self) -> None:
        """Forget how large the rounds before the last were, once nobody owes them an answer."""
        if len(self._sizes) > 1:
            open_rounds = {self.t}.union(*self._waiting.values())
            self._sizes = {t: size for t, size in self._sizes.items() if t in open_rounds}

    def _awaited(self, client: ClientId) -> int:
        index = self._clients.index_of(client)
        if index not in self._waiting:
            raise NotSelected(
                f"client {client!r} has no answer outstanding: it was not selected, or was "
                "reported already; pass strict=False to ignore such answers"
            )
        return index

    def _report(self, t: int, answered: Mapping[int, Observation]) -> None:
        """Pass answers to round t on to the policy; the round's first report books its cohort."""
        chosen = self._unbooked if t == self.t else NOBODY
        size = self._sizes.get(t, (self.cohort_size, self.cohort_size))
        context = replace(self._context(t, NOBODY, *size), roster=self._roster)
        report = Report.of(dict(sorted(answered.items())), chosen=chosen)
        self.policy.observe(self._state, context, report)
        self._ledger.hear(report)
        if t == self.t:
            self._unbooked = NOBODY

    def _context(self, t: int, available: IntArray, m: int, enough: int) -> RoundContext:
        return RoundContext(
            t=t,
            available=available,
            cohort_size=m,
            enough=enough,
            roster=self._clients.roster(),
            opportunity=self._ledger.opportunity,
        )

    def _grow_state(self) -> None:
        """Make room in the policy's state for the clients that joined since the last round."""
        if self._n_state < len(self._clients):
            n_clients = len(self._clients)
            grown, ledger = self.policy.init(n_clients), Ledger.of(n_clients)
            take_over(self._state, grown, n_clients)
            take_over(self._ledger, ledger, n_clients)
            self._state, self._ledger, self._n_state = grown, ledger, n_clients

    def save(self, path: str | os.PathLike[str], *, wait: bool = True) -> None:
        """Write everything to one file, atomically: a crash leaves the old file or the new one.

        Args:
            path: The file.
            wait: Whether to return only when it is written. False copies what is known and has it
                written while you go on; of several that wait for one path only the newest is
                written, and an error comes with the next call. `saved()` waits for it.
        """
        header, arrays = self._contents()
        table, path = self._clients, Path(path).absolute()

        def write(arrays: statefile.Arrays) -> None:
            ids = {f"clients/{name}": a for name, a in table.id_arrays(header["n_ids"]).items()}
            statefile.write(path, header, arrays | ids)

        if wait:
            self._writer.join()
            write(arrays)
            self.saved()
            return
        copied = statefile.copies(arrays, self._spare)

        def write_copy() -> None:
            write(copied)
            self._spare = copied  # the next copy takes their place in memory

        self._writer.put(path, write_copy)

    def saved(self) -> None:
        """Return when everything that `save(wait=False)` was asked for is written."""
        self._writer.wait()

    def _contents(self) -> tuple[dict[str, Any], statefile.Arrays]:
        """Return what a file holds but the ids, which no client changes; arrays are not copied."""
        header = {
            "schema": SCHEMA,
            **described(self.policy),
            "cohort_size": self.cohort_size,
            "invite": self.invite,
            "seed": self.seed,
            "t": self.t,
            "n_state": self._n_state,
            "n_available": self.last_round.n_available if self.last_round else None,
            "n_ids": len(self._clients),
        }
        arrays = {f"clients/{name}": a for name, a in self._clients.to_arrays().items()}
        arrays |= {f"state/{name}": np.asarray(leaf) for name, leaf in leaves(self._state)}
        arrays |= {f"ledger/{name}": np.asarray(leaf) for name, leaf in leaves(self._ledger)}
        cohort = self.last_round.cohort if self.last_round else ()
        arrays["cohort"] = np.array([self._clients.index_of(c) for c in cohort], dtype=np.int64)
        arrays["unbooked"] = self._unbooked
        waiting = [(k, t) for k, rounds in self._waiting.items() for t in rounds]
        arrays["waiting"] = np.array(waiting, dtype=np.int64).reshape(-1, 2)
        sizes = [(t, *size) for t, size in self._sizes.items()]
        arrays["sizes"] = np.array(sizes, dtype=np.int64).reshape(-1, 3)
        if self._roster is not None and self._roster is not self._clients.roster():
            then = {f.name: getattr(self._roster, f.name) for f in fields(Roster)}
            header["n_members_then"] = then.pop("n_members")
            arrays |= {f"then/{name}": a for name, a in then.items() if a is not None}
        return header, arrays

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, policy: Policy | None = None) -> Self:
        """Return the scheduler that `save` wrote.

        Args:
            path: The file.
            policy: The policy to go on with. Needed when it was a class or had functions of your
                own, which a file cannot hold; otherwise it replaces the saved settings, all but
                those that say how answers are remembered.
        """
        header, arrays = statefile.read(Path(path))
        if "policy" not in header:
            raise NotAStateFile(f"{path} holds something else than a scheduler; nothing was loaded")
        header, arrays = migrated(header, arrays, path)
        policy = policy_of(header, path, policy)
        settings = {name: header[name] for name in ("cohort_size", "invite", "seed")}
        scheduler = cls(policy, **settings)
        scheduler.t = header["t"]
        scheduler._clients = ClientTable.from_arrays(
            {n.removeprefix("clients/"): a for n, a in arrays.items() if n.startswith("clients/")}
        )
        scheduler._n_state = int(header["n_state"])
        scheduler._state = restored(policy.init(scheduler._n_state), arrays, "state")
        scheduler._ledger = restored(Ledger.of(scheduler._n_state), arrays, "ledger")
        scheduler._unbooked = arrays["unbooked"]
        scheduler._roster = scheduler._clients.roster()
        if "n_members_then" in header:  # the fleet has changed since the last cohort was chosen
            then = {n.removeprefix("then/"): a for n, a in arrays.items() if n.startswith("then/")}
            scheduler._roster = Roster(n_members=header["n_members_then"], **then)
        for k, t in arrays["waiting"].tolist():
            scheduler._waiting.setdefault(k, []).append(t)
        scheduler._sizes = {t: (n, enough) for t, n, enough in arrays["sizes"].tolist()}
        if scheduler.t:
            n_wanted, enough = scheduler._sizes[scheduler.t]
            scheduler.last_round = RoundRecord(
                t=scheduler.t,
                cohort=tuple(scheduler._clients.ids[k] for k in arrays["cohort"]),
                cohort_size=n_wanted,
                enough=enough,
                n_available=header["n_available"],
            )
        return scheduler


def _observation(client: ClientId, answer: float | Observation) -> Observation:
    if isinstance(answer, Observation):
        return answer
    try:
        return Observation(latency=answer)
    except InvalidInput as error:
        raise InvalidInput(f"client {client!r}: {error}") from None
