"""What a state file holds of a scheduler, and the checks before one is made of it.

A checksum shows that a file is whole, not that it means something: every name, type, shape and
range is checked. An array is never larger than its bytes in the file, and neither is what a file
can make us reserve.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bsfl import validation
from bsfl._core.clients import ClientIds, ids_of
from bsfl._core.engine import Engine
from bsfl._core.pool import PoolState
from bsfl._core.rounds import Rounds
from bsfl._core.state import check_storable, leaves, restore_state
from bsfl._core.task import TaskState
from bsfl.errors import CorruptFile, InvalidInput, NewerFormat, NotAStateFile
from bsfl.persistence import statefile
from bsfl.persistence.saved_policy import described_policy, policy_of
from bsfl.persistence.statefile import Arrays
from bsfl.policy import check_forgettable, check_policy
from bsfl.types import MAX_FEATURES, RoundPlan

if TYPE_CHECKING:
    from bsfl.policy import Policy
    from bsfl.scheduler import Scheduler

SCHEMA = 1
Header = dict[str, Any]
S = TypeVar("S", bound="Scheduler")
FAULTS = (
    *(InvalidInput, ArithmeticError, LookupError, TypeError, ValueError, AttributeError),
    *(RecursionError, np.linalg.LinAlgError),
)
"""What a file can raise that no scheduler has saved."""


def contents(scheduler: "Scheduler") -> tuple[Header, Arrays]:
    """Return what a file holds but the ids; arrays are not copied.

    Moments are stored as ages: another machine's clock starts elsewhere. `clock_s` is for a
    replay: the clock of a journal resumes after a restart where the loaded file was saved.
    """
    engine, n, now_s = scheduler._engine, len(scheduler._ids), scheduler._clock()
    header = {
        "schema": SCHEMA,
        **described_policy(engine.policy),
        "plan": asdict(engine.plan),
        "max_open_rounds": engine.max_open_rounds,
        "forget_after": scheduler.forget_after,
        "seed": engine.seed,
        "seq": scheduler._seq,
        "clock_s": now_s - scheduler._shift_s,
        "feature_columns": scheduler._feature_columns,
        "n_rows": engine.n_rows,
    }
    arrays: Arrays = {}
    for name, state in (("pool", engine.pool), ("task", engine.task)):
        for leaf, value in leaves(state):
            rows = value[:n] if isinstance(value, np.ndarray) else np.asarray(value)
            arrays[f"{name}/{leaf}"] = rows
    arrays |= {f"policy/{leaf}": np.asarray(x) for leaf, x in leaves(engine.policy_state)}
    rounds = engine.rounds.to_arrays()
    rounds["opened_s"] = rounds["opened_s"] - now_s
    return header, arrays | {f"rounds/{name}": array for name, array in rounds.items()}


def load(cls: type[S], path: Path, given: "Policy | None", clock: Callable[[], float]) -> S:
    """Return the scheduler in a file.

    Args:
        cls: The class of the scheduler.
        path: The file.
        given: The policy to go on with; None: the saved one.
        clock: Returns seconds.
    """
    stamp = statefile.stamp_of(path)
    header, arrays = statefile.read(path)
    if "policy" not in header:
        raise NotAStateFile(f"{path} holds something else than a scheduler; nothing was loaded")
    if given is not None:
        check_policy(given)
        check_storable(given.init)
        if header.get("forget_after") is not None:
            check_forgettable(given)
    try:
        schema = validation.natural("schema", header["schema"])
        if schema > SCHEMA:
            raise NewerFormat(
                f"{path} has schema {schema}, this bsfl reads up to {SCHEMA}; "
                "upgrade bsfl to open it; nothing was loaded"
            )
        policy, reads_state = policy_of(header, path, given)
        scheduler = _restored(cls, policy, header, arrays, clock, reads_state=reads_state)
    except FAULTS as error:
        raise CorruptFile(
            f"{path} holds what no scheduler can have saved ({validation.in_short(error)}); "
            "nothing was loaded"
        ) from error
    if not reads_state:
        scheduler._engine.replace_policy(policy)
    scheduler._files.loaded(path, stamp)
    return scheduler


def _restored(
    cls: type[S],
    policy: "Policy",
    header: Header,
    arrays: Arrays,
    clock: Callable[[], float],
    *,
    reads_state: bool,
) -> S:
    """Return a scheduler with the ids and the state in a file, checked."""
    plan, names = RoundPlan(**header["plan"]), ("max_open_rounds", "forget_after", "seed")
    others = {name: header[name] for name in names}
    scheduler = cls(policy, cohort_size=plan.target_responses, **others, clock=clock)
    ids, engine = ids_of(_below("ids/", arrays)), scheduler._engine
    engine.plan = plan
    n, (n_stored, n_features) = len(ids), arrays["pool/features"].shape
    if n_stored != n or n_features > MAX_FEATURES:
        raise InvalidInput(f"{n_stored:,} clients have {n:,} ids and {n_features:,} features")
    engine.task = restore_state(TaskState.of, n, arrays, "task")
    last_round = engine.task.round
    engine.pool = restore_state(
        lambda k: PoolState.of(k, n_features), n, arrays, "pool", last_round=last_round
    )
    if engine.pool.n != n:
        raise InvalidInput(f"there are {n:,} ids, but {engine.pool.n:,} clients")
    engine.n_rows = validation.natural("n_rows", header["n_rows"], low=0, high=n)
    rounds = _below("rounds/", arrays)
    engine.rounds = Rounds.from_arrays(rounds, n_clients=engine.n_rows, last_round=last_round)
    _check_counts(engine)
    if reads_state:
        engine.policy_state = restore_state(
            policy.init, engine.n_rows, arrays, "policy", last_round=last_round
        )
    scheduler._ids = ClientIds(ids)
    scheduler._seq = validation.natural("seq", header["seq"], low=0)
    scheduler._feature_columns = _feature_columns(header["feature_columns"], n_features)
    now_s = clock()
    scheduler._shift_s = now_s - validation.finite("clock_s", header["clock_s"])
    for one in engine.rounds:
        one.opened_s += now_s
    return scheduler


def _check_counts(engine: Engine) -> None:
    """Check that what is counted of clients fits to their rounds.

    Each invitation leads to at most one response or miss, and to one participation or dropped
    response at most. The rounds in the file may add to these counts, or take a credit back.
    """
    task, pool, is_member = engine.task, engine.pool, engine.pool.member
    n_rounds = np.where(is_member, task.round + 1, task.left) - task.joined
    if np.any(n_rounds < 0) or np.any(task.left > task.round + 1):
        raise InvalidInput("a client joined or left after the last round")
    if np.any(task.invitations > n_rounds) or np.any(task.fair_count > n_rounds * (1.0 + 1e-9)):
        raise InvalidInput("a client was selected in more rounds than it was a member")
    if np.any(task.last_selected > task.round):
        raise InvalidInput("a client was selected after the last round")
    pending, creditable, credited = engine.rounds.counts(len(is_member))
    n_reported = pending + pool.responded + pool.missed
    n_credited = creditable + task.participations + task.dropped
    if np.any(np.maximum(n_reported, n_credited) > task.invitations):
        raise InvalidInput("a client has more responses than invitations")
    if np.any(credited > task.participations):
        raise InvalidInput("rounds credit more participations than are counted")


def _feature_columns(names: Any, n_features: int) -> list[str]:
    """Return the names of features that were given as dicts, checked."""
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or len(names) not in (0, n_features) or len(set(names)) < len(names):
        raise InvalidInput(
            f"feature_columns must name {n_features} features, got {validation.short(names)}"
        )
    return list(names)


def _below(prefix: str, arrays: Mapping[str, Any]) -> Arrays:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
