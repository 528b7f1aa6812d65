"""The contract of a policy: what every policy must do, whatever its rule."""

from collections.abc import Callable

from bsfl.errors import InvalidInput
from bsfl.policy import Policy
from bsfl.policy import check_policy as check_is_policy
from bsfl.testing import select_checks as select
from bsfl.testing import state_checks as state

CHECKS: dict[str, Callable[[Policy], None]] = {
    check.__name__: check
    for check in (
        state.have_a_storable_state,
        select.select_valid_cohorts,
        select.select_all_of_too_few,
        select.select_more_than_the_target,
        select.select_without_changes,
        select.repeat_with_equal_generators,
        select.explain_the_selection,
        select.run_with_one_client,
        select.run_with_all_clients,
        select.run_with_1000_clients,
        select.run_buffered_rounds,
        state.learn_in_the_state_alone,
        state.change_only_the_state,
        state.change_only_reported_clients,
        state.accept_rounds_without_responses,
        state.accept_failures,
        state.accept_late_responses,
        state.tolerate_failing_clients,
        state.select_every_client_without_responses,
        state.avoid_unresponsive_clients,
        state.declare_what_it_needs,
        state.weigh_updates,
        state.return_diagnostics,
        state.let_clients_join,
        state.let_clients_leave,
        state.forget_clients,
        state.save_and_load,
    )
}
"""Every check by name."""


def check_policy(policy: Policy) -> None:
    """Check that a policy keeps the contract; an AssertionError names every rule that it breaks.

    >>> from bsfl import UniformRandom
    >>> check_policy(UniformRandom())
    """
    name = type(policy).__name__
    try:
        check_is_policy(policy)
    except InvalidInput as error:
        hint = "" if isinstance(policy, type | str) else f"; write class {name}(bsfl.Policy)"
        raise AssertionError(f"{error}{hint}") from None
    broken: dict[str, list[str]] = {}  # rules by message
    for rule, check in CHECKS.items():
        try:
            check(policy)
        except (AssertionError, InvalidInput) as error:
            broken.setdefault(f"{error}", []).append(rule)
        except Exception as error:  # a policy may fail in any way
            broken.setdefault(f"{type(error).__name__}: {error}", []).append(rule)
    if broken:
        lines = "".join(f"\n  {_line(message, rules)}" for message, rules in broken.items())
        n_broken = sum(map(len, broken.values()))
        raise AssertionError(f"{name} breaks {n_broken} of {len(CHECKS)} rules:{lines}")


def _line(message: str, rules: list[str]) -> str:
    """Return the first rule with this message, the message and the rule's description."""
    description = (CHECKS[rules[0]].__doc__ or "").partition("\n")[0]
    n_more = len(rules) - 1
    others = f"; the same in {n_more} other rule{'s' * (n_more > 1)}" if n_more else ""
    return f"{rules[0]}: {message} ({description.removesuffix('.')}{others})"
