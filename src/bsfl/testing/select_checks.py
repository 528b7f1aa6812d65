"""Rules of the policy contract about selection."""

import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from bsfl._core.state import leaves
from bsfl.errors import InvalidInput
from bsfl.policy import Policy, Selection, check_forgettable
from bsfl.testing.driver import PolicyDriver, contents, response

K, M = 12, 4
"""Clients, and target responses, of most checks."""
MANY = 1000
"""Clients of the check with many clients."""


def start(policy: Policy, n_clients: int = K, target_responses: int = M) -> PolicyDriver:
    """Return a driver of clients with 1, 2, 3, ... samples."""
    samples = np.arange(1.0, n_clients + 1)
    return PolicyDriver(
        policy, n_clients=n_clients, target_responses=target_responses, samples=samples
    )


def cohort_of(driver: PolicyDriver, **numbers: Any) -> list[int]:
    """Return the cohort of the next round, after checking that it is an array of whole numbers."""
    made: Any = driver.selection(**numbers)
    cohort = made.clients if isinstance(made, Selection) else made
    is_array = isinstance(cohort, np.ndarray)
    kind = cohort.dtype if is_array else type(cohort).__name__
    assert is_array, f"select must return a numpy array of whole numbers, got {kind}"
    assert cohort.dtype.kind in "iu", f"select must return whole numbers, got {kind}"
    return [int(k) for k in cohort]


def check_cohort(policy: Policy, cohort: list[int], available: Iterable[int], size: int) -> None:
    """Check that a cohort has the right size, and distinct available clients in order."""
    assert len(set(cohort)) == len(cohort), f"a client was selected twice: {cohort}"
    unavailable = sorted(set(cohort) - set(available))
    assert not unavailable, f"clients were selected that are not available: {unavailable}"
    is_right = 1 <= len(cohort) <= size if policy.may_select_fewer else len(cohort) == size
    assert is_right, f"{len(cohort)} clients were selected instead of {size}"
    assert cohort == sorted(cohort), f"the cohort is not sorted: {cohort}"


def select_valid_cohorts(policy: Policy) -> None:
    """Cohorts are whole numbers, distinct, sorted, available and of the right size."""
    for n_rounds in (0, 1, 2, 7, 30):
        driver = start(policy).run(n_rounds)
        for available in (range(K), range(1, K, 2), (2, 4, 6, 8)):
            check_cohort(policy, cohort_of(driver, available=available), available, M)


def select_all_of_too_few(policy: Policy) -> None:
    """If too few clients are available, all of them are selected."""
    driver = start(policy).run(5)
    for available in ([], [5], [0, 11]):
        cohort = cohort_of(driver, available=available)
        assert cohort == available, f"all of {available} must be selected, got {cohort}"


def select_more_than_the_target(policy: Policy) -> None:
    """Under over-selection n_invited clients are selected, more than the target responses."""
    driver = start(policy)
    for n_invited in (M + 3, M + 1, 2 * M):
        check_cohort(policy, cohort_of(driver, n_invited=n_invited), range(K), n_invited)
        driver.run(3, n_invited=n_invited)


def select_without_changes(policy: Policy) -> None:
    """Selection changes neither the state nor the context."""
    driver = start(policy).run(9)
    context, before = driver.context(), contents(driver.state)
    available = context.available.tobytes()
    driver.select(context)
    assert contents(driver.state) == before, "select changed the state"
    assert context.available.tobytes() == available, "select changed context.available"


def repeat_with_equal_generators(policy: Policy) -> None:
    """Equal generators give equal cohorts, and no other randomness is used."""
    driver = start(policy).run(9)
    of_numpy, of_python = _global_numpy(), random.getstate()
    cohorts = [cohort_of(driver) for _ in range(5)]
    start(policy).run(1)
    message = "a policy must draw random numbers from rng alone: it used"
    assert _global_numpy() == of_numpy, f"{message} numpy's global generator, np.random"
    assert random.getstate() == of_python, f"{message} Python's global generator, random"
    assert cohorts == cohorts[:1] * 5, "equal generators gave different cohorts"


def _global_numpy() -> str:
    return repr(np.random.get_state(legacy=False))  # noqa: NPY002  (to see whether it is used)


def explain_the_selection(policy: Policy) -> None:
    """A Selection describes the problem that was solved, and shares no array with the state."""
    for n_rounds in (0, 2, 9):
        driver = start(policy).run(n_rounds)
        made = driver.selection()
        if not isinstance(made, Selection):
            return
        n = len(made.candidates)
        assert len(made.u) == len(made.g) == n, f"u and g must have {n} values, one per candidate"
        others = set(made.clients) - set(made.reserved) - set(made.candidates)
        assert not (n and others), f"selected clients are neither reserved nor candidates: {others}"
        for name, leaf in leaves(driver.state):
            if isinstance(leaf, np.ndarray):
                shared = np.shares_memory(leaf, made.u) or np.shares_memory(leaf, made.g)
                assert not shared, f"the selection would change with {name} of the state"


def run_with_one_client(policy: Policy) -> None:
    """There may be one client."""
    driver = start(policy, n_clients=1, target_responses=1)
    for _ in range(3):
        cohort = cohort_of(driver)
        assert cohort == [0], f"the only client must be selected, got {cohort}"
        driver.run(1)


def run_with_all_clients(policy: Policy) -> None:
    """A cohort may hold all clients, m = K."""
    cohort = cohort_of(start(policy, target_responses=K).run(3))
    assert cohort == list(range(K)), f"with m = K all clients must be selected, got {cohort}"


def run_with_1000_clients(policy: Policy) -> None:
    """There may be a thousand clients: every array of clients has as many rows."""
    try:
        check_forgettable(policy)
    except InvalidInput:
        return  # it has settings for 40 clients
    driver = start(policy, n_clients=MANY).run(3)
    check_cohort(policy, cohort_of(driver), range(MANY), M)
    driver.run_round({k: response(k) for k in range(MANY - M, MANY)})


def run_buffered_rounds(policy: Policy) -> None:
    """Rounds of one client may overlap, and end in another order than they began."""
    driver = PolicyDriver(
        policy,
        n_clients=K,
        target_responses=1,
        late="apply",
        max_open_rounds=M,
        samples=np.arange(1.0, K + 1),
    )
    in_flight: dict[int, int] = {}  # rounds by client
    for step in range(40):
        available = [k for k in range(K) if k not in in_flight]
        check_cohort(policy, cohort_of(driver, available=available), available, 1)
        number = driver.open(available=available)
        in_flight[driver.cohort[0]] = number
        if len(in_flight) == M:
            client = sorted(in_flight)[step % M]
            number = in_flight.pop(client)
            driver.respond({client: response(client)}, number)
            driver.close(number)
