"""What a file holds of a scheduler: written as it is, and checked before anything is built of it.

A checksum tells that a file is whole, not that it means something. So every name, kind, shape and
range is checked, and then a round is rehearsed: what a policy cannot choose from is not loaded. An
array is never larger than its bytes in the file, so neither is what a file can make us reserve: at
most ten times its size.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsfl import checks
from bsfl.errors import CorruptFile, InvalidInput, NotAStateFile
from bsfl.estimation.ledger import Ledger
from bsfl.over_selection import Invite, check_invite
from bsfl.policies import Policy
from bsfl.policies.base import check_places
from bsfl.randomness import stream
from bsfl.records import (
    LARGEST_FEATURE,
    MOST_FEATURES,
    NOBODY,
    IntArray,
    Observation,
    Report,
    Rng,
    Roster,
    RoundContext,
)
from bsfl.saving.migrations import SCHEMA, Header, migrated
from bsfl.saving.saved_policy import described, policy_of
from bsfl.saving.statefile import Arrays
from bsfl.scheduling.clients import ClientTable, ids_of
from bsfl.scheduling.last_round import LastRound
from bsfl.scheduling.learned import Learned
from bsfl.scheduling.outstanding import Outstanding
from bsfl.solvers import TooManyCohorts
from bsfl.state import MOST_ROUNDS, leaves, restored

KINDS = {
    "clients/member": "b",
    "clients/since": "i",
    "clients/left": "i",
    "clients/seen": "i",
    "clients/samples": "f",
    "clients/quality": "f",
    "clients/features": "f",
}
"""The columns of clients, and what numbers they hold."""
THEN = {"members": "b", "since": "i", "samples": "f", "quality": "f", "features": "f"}
"""The columns of the fleet as it was when the last cohort was chosen."""
LARGEST_SEED = 2**256
"""Seeds may be as large as a random number of any generator."""


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """Everything that a scheduler goes on from.

    Attributes:
        policy, cohort_size, invite, forget_after, seed: As it was made.
        t: The last round.
        last: What became of it so far; None before the first.
        unbooked: Those of its cohort whose selection is not in the state yet.
        clients: The fleet.
        learned: What is known of them.
        roster: The fleet as it was in the last round.
        awaited: Who owes an answer.
    """

    policy: Policy
    cohort_size: int
    invite: Invite
    forget_after: int | None
    seed: int
    t: int
    last: LastRound | None
    unbooked: IntArray
    clients: ClientTable
    learned: Learned
    roster: Roster | None
    awaited: Outstanding

    def contents(self) -> tuple[Header, Arrays]:
        """Return what a file holds but the ids, which no client changes; arrays are not copied."""
        header = {
            "schema": SCHEMA,
            **described(self.policy),
            "cohort_size": self.cohort_size,
            "invite": self.invite,
            "forget_after": self.forget_after,
            "seed": self.seed,
            "t": self.t,
            "n_state": self.learned.n_clients,
            "n_available": self.last.n_available if self.last else None,
            "is_told": self.last.is_told if self.last else False,
            "n_ids": len(self.clients),
        }
        arrays = {f"clients/{name}": a for name, a in self.clients.to_arrays().items()}
        arrays |= {f"state/{name}": np.asarray(leaf) for name, leaf in leaves(self.learned.state)}
        arrays |= {f"ledger/{name}": np.asarray(leaf) for name, leaf in leaves(self.learned.ledger)}
        arrays |= {"cohort": self.last.cohort if self.last else NOBODY}
        arrays |= {"unbooked": self.unbooked, **self.awaited.to_arrays()}
        if self.last:
            arrays |= {f"last/{name}": array for name, array in self.last.to_arrays().items()}
        if self.roster is not None and self.roster is not self.clients.roster():
            then = {f.name: getattr(self.roster, f.name) for f in fields(Roster)}
            header["n_members_then"] = then.pop("n_members")
            arrays |= {f"then/{name}": a for name, a in then.items() if a is not None}
        return header, arrays


def restored_snapshot(header: Header, arrays: Arrays, path: Path, given: Policy | None) -> Snapshot:
    """Return what a file holds, or say what is wrong with it.

    Args:
        header, arrays: The content of the file.
        path: The file, for messages.
        given: The policy to go on with; None: the saved one.
    """
    if "policy" not in header:
        raise NotAStateFile(f"{path} holds something else than a scheduler; nothing was loaded")
    with corrupt_if_wrong(path):
        header, arrays = migrated(header, arrays, path)
        _check_header(header)
        ids = ids_of(_below("clients/", arrays))
        _check_arrays(header, arrays, len(ids))
        policy = policy_of(header, path, given)
        clients = ClientTable.from_arrays(ids, _below("clients/", arrays))
        roster = clients.roster()
        if "n_members_then" in header:  # the fleet has changed since the last cohort was chosen
            roster = Roster(n_members=header["n_members_then"], **_below("then/", arrays))
        if header["forget_after"] is not None:
            check_places(policy)
        n_state, in_part = header["n_state"], header.get("schema") != SCHEMA or given is not None
        snapshot = Snapshot(
            policy=policy,
            **{key: header[key] for key in ("cohort_size", "invite", "forget_after", "seed", "t")},
            last=None,
            unbooked=arrays["unbooked"],
            clients=clients,
            learned=Learned.of(
                policy,
                n_state,
                restored(policy.init, n_state, arrays, "state", in_part=in_part),
                restored(Ledger.of, n_state, arrays, "ledger", in_part=in_part),
            ),
            roster=roster,
            awaited=Outstanding.from_arrays(arrays),
        )
        snapshot.last = _last_round(header, arrays, snapshot.awaited)
        if header["settings"] is not None:  # functions of the user's own are not called here
            rehearse(snapshot)
    return snapshot


def _last_round(header: Header, arrays: Arrays, awaited: Outstanding) -> LastRound | None:
    size = awaited.size(header["t"])
    if size is None or header["n_available"] is None:
        return None
    return LastRound(
        t=header["t"],
        cohort=arrays["cohort"],
        cohort_size=size[0],
        enough=size[1],
        n_available=header["n_available"],
        is_told=header.get("is_told", False),
        **_below("last/", arrays),
    )


@contextmanager
def corrupt_if_wrong(path: Path) -> Iterator[None]:
    """Say of everything that goes wrong within that the file is to blame."""
    try:
        yield
    except (
        *(InvalidInput, ArithmeticError, LookupError, TypeError, ValueError, AttributeError),
        *(RecursionError, np.linalg.LinAlgError),
    ) as error:
        raise CorruptFile(
            f"{path} holds what no scheduler can have saved ({checks.in_short(error)}); "
            "nothing was loaded"
        ) from error


def _check_header(header: Header) -> None:
    if not isinstance(header["policy"], str):
        raise InvalidInput(f"policy must be a name, got {checks.short(header['policy'])}")
    for key in ("settings", "remembers"):
        if not isinstance(header[key], dict | None):
            raise InvalidInput(f"{key} must be a table, got {checks.short(header[key])}")
    checks.natural("cohort_size", header["cohort_size"])
    check_invite(header["invite"])
    if header["forget_after"] is not None:
        checks.natural("forget_after", header["forget_after"])
    checks.natural("seed", header["seed"], low=0, high=LARGEST_SEED)
    checks.natural("t", header["t"], low=0, high=MOST_ROUNDS)
    for key in ("n_ids", "n_state"):
        checks.natural(key, header[key], low=0)
    if header["n_available"] is not None or header["t"]:
        checks.natural("n_available", header["n_available"], low=0)
    if not isinstance(header.get("is_told", False), bool):
        raise InvalidInput(f"is_told must be true or false, got {checks.short(header['is_told'])}")
    if "n_members_then" in header:
        checks.natural("n_members_then", header["n_members_then"], low=0)


def _check_arrays(header: Header, arrays: Arrays, n_ids: int) -> None:
    """Check arrays of clients and rounds; those of the state are checked with the policy."""
    t, n_state = header["t"], header["n_state"]
    if header["n_ids"] != n_ids or n_state > n_ids:
        raise InvalidInput(f"n_ids and n_state must fit the {n_ids} ids")
    for name, kind in KINDS.items():
        _check_column(name, arrays[name], kind, n_ids, t)
    n_then = len(next(iter(_below("then/", arrays).values()), ()))
    if not n_state <= (n_then or n_state) <= n_ids:
        raise InvalidInput("the fleet of the last round does not fit")
    for name, array in _below("then/", arrays).items():
        _check_column(f"then/{name}", array, THEN[name], n_then, t)
    for name, n in (("cohort", n_ids), ("unbooked", n_state)):
        _check_indices(name, arrays[name], n, ndim=1)
        if len(np.unique(arrays[name])) < len(arrays[name]):
            raise InvalidInput(f"{name} names a client twice")
    if np.any(np.diff(arrays["cohort"]) < 0):
        raise InvalidInput("cohort must be sorted")
    LastRound.check_arrays(_below("last/", arrays), len(arrays["cohort"]))
    waiting, sizes = arrays["waiting"], arrays["sizes"]
    _check_indices("waiting", waiting, max(n_state, t + 1), ndim=2)
    _check_indices("sizes", sizes, checks.LARGEST, ndim=2)
    if waiting.shape[1] != 2 or sizes.shape[1] != 3:
        raise InvalidInput("waiting and sizes must have two and three columns")
    rounds = set(sizes[:, 0].tolist())
    if len(rounds) < len(sizes) or np.any(sizes[:, 1:] < 1) or np.any(sizes[:, 1] < sizes[:, 2]):
        raise InvalidInput("sizes must tell once for each round how many were asked, are enough")
    if any(not 1 <= one <= t for one in rounds):
        raise InvalidInput("sizes tells of rounds that have not been")
    if (t and t not in rounds) or not set(waiting[:, 1].tolist()) <= rounds:
        raise InvalidInput("a round that is waited for has no size")
    if np.any(waiting[:, 0] >= n_state) or len(set(map(tuple, waiting.tolist()))) < len(waiting):
        raise InvalidInput("waiting names a client that was never chosen, or one twice")


def _check_column(name: str, array: Any, kind: str, n: int, t: int) -> None:
    n_dimensions = 2 if name.endswith("features") else 1
    if array.dtype.kind != kind or array.ndim != n_dimensions or len(array) != n:
        raise InvalidInput(f"{name} must hold one value for each of {n} clients")
    if n_dimensions == 2 and array.shape[1] > MOST_FEATURES:  # a newcomer would get as many
        raise InvalidInput(f"{name} are {array.shape[1]:,} of each client")
    fine = np.ones(array.shape, dtype=bool)
    if kind == "i":
        fine = (array >= 0) & (array <= t + 1)
    elif name.endswith("samples"):
        fine = np.isnan(array) | ((array > 0) & (array <= checks.LARGEST))
    elif name.endswith("quality"):
        fine = (array > 0) & (array <= 1)
    elif kind == "f":
        fine = np.isnan(array) | (np.abs(array) <= LARGEST_FEATURE)
    if not fine.all():
        raise InvalidInput(f"{name} holds {array[~fine].flat[0]!s}, which cannot be")


def _check_indices(name: str, array: Any, below: int, ndim: int) -> None:
    if array.dtype.kind != "i" or array.ndim != ndim:
        raise InvalidInput(f"{name} must hold whole numbers")
    if np.any(array < 0) or np.any(array >= below):
        raise InvalidInput(f"{name} holds {int(array.max()):,}, which cannot be")


def rehearse(snapshot: Snapshot) -> None:
    """Play two rounds with a copy of what was learned; nothing of it may be out of range.

    A policy may refuse a round for what it was not told, a newcomer's samples; then it does so
    whatever was learned, and would not if it were told.
    """
    members, known = snapshot.clients.members(), snapshot.learned
    if not len(members):
        return
    learned = Learned.of(
        known.policy, known.n_clients, copy.deepcopy(known.state), copy.deepcopy(known.ledger)
    )
    learned.grow(len(snapshot.clients))
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        for t in (snapshot.t + 1, snapshot.t + 2):
            context = RoundContext(
                t=t,
                available=members,
                cohort_size=min(snapshot.cohort_size, len(members)),
                roster=snapshot.clients.roster(),
                opportunity=learned.ledger.opportunity,
            )
            rng = stream(snapshot.seed, "rehearsal", t)
            try:
                cohort = learned.choose(context, rng)
            except TooManyCohorts:
                return
            except InvalidInput:
                if not _is_untold(known.policy, len(snapshot.clients), context, rng):
                    raise  # what was learned is to blame, or the settings
                return
            answer = Observation(latency=1.0, loss=1.0, samples=1)
            report = Report.of(dict.fromkeys(cohort.tolist(), answer), chosen=cohort)
            learned.hear(context, report)


def _is_untold(policy: Policy, n_clients: int, context: RoundContext, rng: Rng) -> bool:
    """Return whether a policy that has learned nothing refuses a round for want of samples."""
    assert context.roster
    told = replace(context, roster=replace(context.roster, samples=np.ones(n_clients)))
    fails = not _can_start(policy, n_clients, context, rng)
    return fails and _can_start(policy, n_clients, told, rng)


def _can_start(policy: Policy, n_clients: int, context: RoundContext, rng: Rng) -> bool:
    """Return whether a policy that has learned nothing can choose in a round."""
    fresh = Learned(policy)
    try:
        fresh.grow(n_clients)
        fresh.choose(context, rng)
    except InvalidInput:
        return False
    return True


def _below(prefix: str, arrays: Mapping[str, Any]) -> Arrays:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
