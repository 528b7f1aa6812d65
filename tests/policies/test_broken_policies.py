"""The contract suite sees what is wrong with a policy, and names it."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from bsfl import Policy, Selection
from bsfl.policy import LOSS
from bsfl.testing import CHECKS, check_policy


@dataclass
class Counts:
    n: np.ndarray


class Sound(Policy):
    """Select the clients that were selected least so far, as a user would write it."""

    def init(self, n_clients):
        return Counts(np.zeros(n_clients))

    def select(self, state, context, rng):
        ties = rng.random(len(context.available))
        order = np.lexsort((ties, state.n[context.available]))
        return np.sort(context.available[order[: context.n_invited]])

    def observe(self, state, context, report):
        state.n[report.invited] += 1


class SelectFaults:
    """Each function replaces `select` of the sound policy, with one fault."""

    def mutates_state(self, state, context, rng):
        cohort = Sound.select(self, state, context, rng)
        state.n[cohort] += 1
        return cohort

    def selects_twice(self, state, context, rng):
        cohort = Sound.select(self, state, context, rng)
        return np.sort(np.append(cohort[1:], cohort[-1:]))

    def ignores_availability(self, state, context, rng):
        return np.sort(np.argsort(state.n, kind="stable")[: context.n_invited])

    def unsorted(self, state, context, rng):
        return Sound.select(self, state, context, rng)[::-1]

    def one_too_few(self, state, context, rng):
        return Sound.select(self, state, context, rng)[1:]

    def ignores_over_selection(self, state, context, rng):
        return np.sort(rng.permutation(context.available)[: context.target_responses])

    def global_randomness(self, state, context, rng):
        n = min(context.n_invited, len(context.available))
        return np.sort(np.random.choice(context.available, n, replace=False))  # noqa: NPY002

    def own_randomness(self, state, context, rng):
        return Sound.select(self, state, context, np.random.default_rng())

    def needs_undeclared_samples(self, state, context, rng):
        assert len(context.pool.sizes)
        return Sound.select(self, state, context, rng)

    def floats(self, state, context, rng):
        return Sound.select(self, state, context, rng).astype(float)

    def cannot_select_all(self, state, context, rng):
        order = np.argpartition(state.n[context.available], context.n_invited)
        return np.sort(context.available[order[: context.n_invited]])

    def cools(self, state, context, rng):
        self.epsilon = getattr(self, "epsilon", 1.0) * 0.99
        return Sound.select(self, state, context, rng)

    def remembers_in_a_list(self, state, context, rng):
        self.past.append(context.round)
        late = len(self.past) % 12 // 6
        return Sound.select(self, Counts(state.n * late), context, rng)

    def wrong_signature(self, state, available, m, rng):
        return available[:m]

    def shuffles_the_context(self, state, context, rng):
        rng.shuffle(context.available)
        return np.sort(context.available[: context.n_invited])

    def selection_of_the_state(self, state, context, rng):
        cohort, n = Sound.select(self, state, context, rng), len(state.n)
        return Selection(clients=cohort, candidates=np.arange(n), u=np.zeros(n), g=state.n)


class ObserveFaults:
    """Each function replaces `observe` of the sound policy, with one fault."""

    def needs_responses(self, state, context, report):
        fastest = report.latency_s.min()  # there may be no response
        state.n[report.invited] += 1 + int(fastest < 0)

    def needs_latencies(self, state, context, report):
        state.n[report.clients] += 0.0 * report.latency_s  # a failure may have none

    def needs_undeclared_losses(self, state, context, report):
        state.n[report.clients[report.usable]] += report.loss[report.usable]

    def returns_its_state(self, state, context, report):
        return Counts(state.n + np.isin(np.arange(len(state.n)), report.invited))

    def changes_the_report(self, state, context, report):
        report.latency_s[:] = 0.0

    def changes_the_counts(self, state, context, report):
        context.task.invitations[report.invited] += 1

    def changes_all_clients(self, state, context, report):
        state.n += 1

    def prefers_unresponsive_clients(self, state, context, report):
        state.n[report.clients[report.responded]] += report.latency_s[report.responded]


class InitFaults:
    """Each function replaces `init` of the sound policy, with one fault."""

    def is_a_dict(self, n_clients):
        return {"n": np.zeros(n_clients)}

    def holds_a_list(self, n_clients):
        return Counts([0] * n_clients)

    def has_room_for_fifty(self, n_clients):
        return Counts(np.zeros(50))

    def shares_its_state(self, n_clients):
        return COUNTS


COUNTS = Counts(np.zeros(40))


class WeightsFaults:
    """Each function replaces the default `weights`, with one fault."""

    def are_nan(self, state, context, clients):
        return np.full(len(clients), np.nan)

    def are_one_number(self, state, context, clients):
        return 1.0


class DiagnosticsFaults:
    def are_a_tuple(self, state, context):
        return (1.0, 2.0)


class NeedsFaults:
    hold_an_unknown_word = LOSS | {"gradients"}


MESSAGES = {
    "mutates_state": "select_without_changes: select changed the state",
    "selects_twice": "select_valid_cohorts: a client was selected twice",
    "ignores_availability": "select_valid_cohorts: clients were selected that are not available",
    "unsorted": "select_valid_cohorts: the cohort is not sorted",
    "one_too_few": "select_valid_cohorts: 3 clients were selected instead of 4",
    "ignores_over_selection": "select_more_than_the_target: 4 clients were selected instead of 7",
    "global_randomness": "repeat_with_equal_generators: .* it used numpy's global generator",
    "own_randomness": "repeat_with_equal_generators: equal generators gave different cohorts",
    "needs_undeclared_samples": "declare_what_it_needs: needs does not name loss or samples, but",
    "floats": "select_valid_cohorts: select must return whole numbers, got float64",
    "cannot_select_all": r"run_with_all_clients: ValueError: kth\(=12\) out of bounds",
    "cools": "learn_in_the_state_alone: a run changed epsilon of the policy itself",
    "remembers_in_a_list": "learn_in_the_state_alone: a run changed past of the policy itself",
    "wrong_signature": "TypeError: .*; the same in .* other rules",
    "shuffles_the_context": "select_without_changes: select changed context.available",
    "selection_of_the_state": "explain_the_selection: the selection would change with n of",
    "needs_responses": "accept_rounds_without_responses: .* without responses: ValueError",
    "needs_latencies": "accept_failures: n of the state holds a NaN",
    "needs_undeclared_losses": "declare_what_it_needs: n of the state holds a NaN",
    "returns_its_state": "change_only_the_state: .* it returns is ignored, got Counts",
    "changes_the_report": "change_only_the_state: observe changed latency_s of the report",
    "changes_the_counts": "ValueError: .* is read-only",
    "changes_all_clients": "change_only_reported_clients: observe changed n of clients that are",
    "prefers_unresponsive_clients": "avoid_unresponsive_clients: 4 of 10 clients, which are never",
    "is_a_dict": "have_a_storable_state: the state .* must be a dataclass .* got dict",
    "holds_a_list": "have_a_storable_state: n of the state .* must be an array .* got list",
    "has_room_for_fifty": "run_with_1000_clients: IndexError: .* out of bounds",
    "shares_its_state": "learn_in_the_state_alone: ",
    "are_nan": "weigh_updates: weights must be finite and not below 0",
    "are_one_number": "weigh_updates: weights must be one number per client, got 1.0",
    "are_a_tuple": "return_diagnostics: diagnostics must return a dict",
    "hold_an_unknown_word": "declare_what_it_needs: needs must hold words of .* got .*gradients",
}


FAULTS = {
    "select": SelectFaults,
    "observe": ObserveFaults,
    "init": InitFaults,
    "weights": WeightsFaults,
    "diagnostics": DiagnosticsFaults,
    "needs": NeedsFaults,
}
"""By the attribute of a policy, what replaces it."""


def broken(name):
    """Return the sound policy with the fault of this name."""
    attribute, faults = next(item for item in FAULTS.items() if hasattr(item[1], name))
    policy = type("Broken", (Sound,), {attribute: getattr(faults, name)})()
    policy.past = []
    return policy


@pytest.mark.parametrize("fault", MESSAGES)
def test_every_fault_is_named(fault):
    with pytest.raises(AssertionError, match=MESSAGES[fault]) as raised:
        check_policy(broken(fault))
    assert re.match(rf"Broken breaks \d+ of {len(CHECKS)} rules:\n", str(raised.value))


def test_a_sound_policy_passes():
    check_policy(Sound())


class NoPolicy:
    """It has all methods, and not the defaults of the others."""

    init, select, observe = Sound.init, Sound.select, Sound.observe


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Sound, r"got the class Sound; did you mean Sound\(\)\?"),
        (NoPolicy(), r"subclass of bsfl.Policy.*; write class NoPolicy\(bsfl"),
        ("random", "make_policy makes one by its name"),
    ],
)
def test_what_is_no_policy_gets_a_clear_message(given, message):
    with pytest.raises(AssertionError, match=message):
        check_policy(given)
