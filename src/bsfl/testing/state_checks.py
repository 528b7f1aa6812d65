"""Rules of the policy contract about learning and the state."""

import pickle
from collections import Counter
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from bsfl._core.events import Forget, Join, Leave
from bsfl._core.state import check_storable, client_leaves, leaves
from bsfl.errors import InvalidInput
from bsfl.policy import LOSS, LOSSES_FROM_0, SAMPLES, Policy, PolicyWrapper, check_forgettable
from bsfl.scheduler import Scheduler
from bsfl.testing.driver import PolicyDriver, response
from bsfl.testing.select_checks import K, M, check_cohort, cohort_of, start
from bsfl.types import Observation, Outcome, RoundContext, RoundReport, State

COLUMNS = ("clients", "latency_s", "outcome", "loss", "samples", "invited")
"""Arrays of a report."""


def check_no_nan(state: State) -> None:
    """Check that no number of a state is NaN."""
    for name, leaf in leaves(state):
        assert not np.isnan(leaf).any(), f"{name} of the state holds a NaN"


def have_a_storable_state(policy: Policy) -> None:
    """The state is None, or a dataclass of arrays of numbers, numbers and further states."""
    check_storable(policy.init)
    state = start(policy).run(5).state
    check_storable(lambda n: state)


def learn_in_the_state_alone(policy: Policy) -> None:
    """What is learned is in the state: a second run from a fresh one equals the first."""
    before = _attributes(policy)
    first, second = ([cohort_of(start(policy).run(n)) for n in (0, 3, 10)] for _ in range(2))
    after = _attributes(policy)
    changed = sorted(name for name in after if after[name] != before.get(name))
    assert not changed, (
        f"a run changed {', '.join(changed)} of the policy itself: what is learned belongs into "
        "the state"
    )
    assert first == second, (
        "a run from a fresh state differs from the one before: something is learned outside the "
        "state"
    )
    one, other = policy.init(K), policy.init(K)
    arrays = [leaf for _, leaf in leaves(one) if isinstance(leaf, np.ndarray)]
    for name, leaf in leaves(other):
        if isinstance(leaf, np.ndarray):
            shared = any(np.shares_memory(leaf, known) for known in arrays)
            assert not shared, f"init returned the same array twice: {name}"


def _attributes(policy: Policy) -> dict[str, bytes | str]:
    """Return the attributes of a policy itself, in a form that can be compared."""
    slots = (name for kind in type(policy).__mro__ for name in getattr(kind, "__slots__", ()))
    names = {*slots, *getattr(policy, "__dict__", ())}
    values = {name: getattr(policy, name) for name in names if hasattr(policy, name)}
    found: dict[str, bytes | str] = {}
    for name, value in values.items():
        try:
            found[name] = pickle.dumps(value)
        except Exception:  # such as a lambda
            found[name] = repr(value)
    return found


def change_only_the_state(policy: Policy) -> None:
    """Learning changes the state in place, and nothing else: not the report either."""
    start(_Watched(policy)).run(3)


class _Watched(PolicyWrapper):
    """Checks what `observe` returns, and that it does not change the report."""

    def observe(self, state: State, context: RoundContext, report: RoundReport) -> None:
        before = {name: getattr(report, name).tobytes() for name in COLUMNS}
        observe: Any = self.policy.observe
        returned = observe(state, context, report)
        assert returned is None, (
            "observe must change the state in place; what it returns is ignored, "
            f"got {type(returned).__name__}"
        )
        changed = [name for name in COLUMNS if getattr(report, name).tobytes() != before[name]]
        assert not changed, f"observe changed {', '.join(changed)} of the report"


def change_only_reported_clients(policy: Policy) -> None:
    """Learning costs O(cohort): rows of clients outside the report do not change."""
    driver = start(policy).run(10)
    driver.open([2, 5])
    before = {name: np.copy(leaf) for name, leaf in leaves(driver.state)}
    driver.respond({k: response(k) for k in (2, 5)})
    others = np.setdiff1d(np.arange(K), [2, 5])
    for name, leaf in leaves(driver.state):
        old, new = before[name], np.asarray(leaf)
        if old.ndim and len(old) == K:
            same = np.array_equal(old[others], new[others], equal_nan=True)
            assert same, f"observe changed {name} of clients that are not in the report"


def accept_rounds_without_responses(policy: Policy) -> None:
    """A report may be empty: no client responded, or none was invited."""
    driver = start(policy).run(3)
    for cohort in ([], [1, 2]):
        try:
            driver.run_round({}, cohort=cohort)
        except Exception as error:
            raise AssertionError(
                f"observe does not accept a report without responses: "
                f"{type(error).__name__}: {error}"
            ) from error
    check_cohort(policy, cohort_of(driver), range(K), M)


def accept_failures(policy: Policy) -> None:
    """A failed client reports neither latency nor loss, and leaves no NaN in the state."""
    driver = start(policy)
    driver.run_round({1: Observation(outcome="failed")})
    check_no_nan(driver.state)
    check_cohort(policy, cohort_of(driver), range(K), M)


def accept_late_responses(policy: Policy) -> None:
    """Responses may come after later rounds were opened, in any order, applied or dropped."""
    choices: tuple[Literal["apply", "drop"], ...] = ("apply", "drop")
    for late in choices:
        samples = np.arange(1.0, K + 1)
        driver = PolicyDriver(policy, n_clients=K, target_responses=M, late=late, samples=samples)
        driver.run_round({0: response(0)}, cohort=[0, 1, 2])
        driver.run_round({}, cohort=[1, 2, 3])
        for number, client in ((1, 1), (1, 2), (2, 1), (2, 3)):
            driver.respond({client: response(client)}, number)
        check_cohort(policy, cohort_of(driver.run(3)), range(K), M)


def tolerate_failing_clients(policy: Policy) -> None:
    """A client that never responds leaves no NaN in the state."""
    outcomes: tuple[Outcome, ...] = ("timeout", "failed")
    for outcome in outcomes:
        driver = start(policy)
        failure = Observation(latency_s=20.0, outcome=outcome)
        for _ in range(39):
            driver.open()
            driver.respond({k: failure if k == 3 else response(k) for k in driver.cohort})
            driver.close()
        check_no_nan(driver.state)


def select_every_client_without_responses(policy: Policy) -> None:
    """If no client ever responds, every client is selected at some time."""
    driver, selected = start(policy), set[int]()
    for _ in range(79):
        driver.open()
        driver.close()
        selected |= set(driver.cohort)
    never = sorted(set(range(K)) - selected)
    assert not never, f"if no client responds, these are never selected: {never}"


def avoid_unresponsive_clients(policy: Policy) -> None:
    """Clients that are never reported are not preferred: no response is no evidence of speed."""
    if policy.is_oracle:
        return  # it does not learn
    driver = PolicyDriver(policy, n_clients=10, target_responses=2, samples=[5.0] * 10)
    selected = Counter[int]()
    for _ in range(800):
        driver.open()
        selected.update(driver.cohort)
        driver.respond({k: response(k) for k in driver.cohort if k % 3})
        driver.close()
    n_unresponsive = sum(selected[k] for k in range(0, 10, 3))
    # at random it is 40 %, with a standard deviation of 1.7 % if such clients come in pairs
    assert n_unresponsive < 0.45 * selected.total(), (
        f"4 of 10 clients, which are never reported, had {n_unresponsive} of {selected.total()} "
        "places"
    )


def declare_what_it_needs(policy: Policy) -> None:
    """`needs` names everything that clients must report: without the rest the policy works."""
    needs, known = policy.needs, LOSSES_FROM_0 | SAMPLES
    is_declared = isinstance(needs, frozenset) and needs <= known
    assert is_declared, f"needs must hold words of {sorted(known)} alone, got {needs!r}"
    samples = np.arange(1.0, K + 1) if needs >= SAMPLES else None
    driver = PolicyDriver(policy, n_clients=K, target_responses=M, samples=samples)
    observation = Observation(latency_s=2.0, loss=1.5 if needs >= LOSS else None)
    try:
        for _ in range(5):
            driver.open()
            driver.respond(dict.fromkeys(driver.cohort, observation))
            driver.close()
    except Exception as error:
        missing = sorted((LOSS | SAMPLES) - needs)
        raise AssertionError(
            f"needs does not name {' or '.join(missing)}, but without that: "
            f"{type(error).__name__}: {error}"
        ) from error
    check_no_nan(driver.state)


def weigh_updates(policy: Policy) -> None:
    """`weights` returns None, or a finite number of at least 0 for each client."""
    driver = start(policy).run(3)
    context = driver.context()
    cohort = driver.select(context)
    for clients in (cohort, cohort[:1], cohort[:0]):
        weights: Any = policy.weights(driver.state, context, clients)
        if weights is None:
            continue
        got = f"got {weights!r} for {len(clients)} clients"
        assert np.shape(weights) == clients.shape, f"weights must be one number per client, {got}"
        is_valid = np.all(np.isfinite(weights) & (np.asarray(weights) >= 0))
        assert is_valid, f"weights must be finite and not below 0, {got}"


def return_diagnostics(policy: Policy) -> None:
    """`diagnostics` returns finite numbers by name."""
    for n_rounds in (0, 5):
        driver = start(policy).run(n_rounds)
        found: Any = policy.diagnostics(driver.state, driver.context())
        assert isinstance(found, dict), f"diagnostics must return a dict, got {found!r}"
        wrong = {k: v for k, v in found.items() if not np.isfinite(v) or not isinstance(k, str)}
        assert not wrong, f"diagnostics must be finite numbers by name, got {wrong}"


def let_clients_join(policy: Policy) -> None:
    """Clients may join at any time."""
    driver = start(policy, n_clients=5, target_responses=3)
    for n_clients in range(6, 16):
        driver.run(1)
        driver.engine.run(Join(n_new=1))
        driver.pool.samples[n_clients - 1] = 2.0
        check_cohort(policy, cohort_of(driver), range(n_clients), 3)


def let_clients_leave(policy: Policy) -> None:
    """Clients may leave, and come back."""
    driver = start(policy).run(6)
    gone = np.arange(0, K, 2)
    driver.engine.run(Leave(clients=gone))
    for _ in range(4):
        check_cohort(policy, cohort_of(driver), range(1, K, 2), M)
        driver.run(1)
    driver.engine.run(Join(clients=gone))
    check_cohort(policy, cohort_of(driver.run(2)), range(K), M)


def forget_clients(policy: Policy) -> None:
    """Clients may be forgotten: the others move up, in every array of clients."""
    try:
        check_forgettable(policy)
    except InvalidInput:
        return  # it has settings by dense index
    driver = start(policy).run(6)
    kept = np.arange(K) % 3 > 0
    driver.engine.run(Forget(kept=kept))
    n, of_clients = int(kept.sum()), client_leaves(policy.init)
    for name, leaf in leaves(driver.state):
        if name in of_clients:
            assert len(leaf) == n, f"{name} has {len(leaf)} rows for {n} clients"
    for _ in range(4):
        check_cohort(policy, cohort_of(driver), range(n), M)
        driver.run(1)


def save_and_load(policy: Policy) -> None:
    """After saving and loading it resumes with the same cohorts."""
    scheduler = Scheduler(policy, cohort_size=3, seed=5)
    scheduler.join(range(10), samples=np.arange(1.0, 11).tolist())
    for _ in range(8):
        scheduler.observe({k: response(k) for k in scheduler.select()})
    with TemporaryDirectory() as folder:
        scheduler.save(f"{folder}/scheduler.bsfl")
        loaded = Scheduler.load(f"{folder}/scheduler.bsfl", policy=policy)
    for _ in range(5):
        cohort = scheduler.select()
        assert cohort == loaded.select(), "after loading another cohort is selected"
        for one in (scheduler, loaded):
            one.observe({k: response(k) for k in cohort})
