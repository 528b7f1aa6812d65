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
        return Counts(np.zeros(n_clients, dtype=np.int64))

    def select(self, state, context, rng):
        ties = rng.random(len(context.available))
        order = np.lexsort((ties, state.n[context.available]))
        return np.sort(context.available[order[: context.n_invited]])

    def observe(self, state, context, report):
        state.n[report.invited] += 1


class SoundWithoutState(Policy):
    """The same from the counts of the task."""

    def init(self, n_clients):
        return None

    def select(self, state, context, rng):
        ties = rng.random(len(context.available))
        order = np.lexsort((ties, context.task.invitations[context.available]))
        clients = np.sort(context.available[order[: context.n_invited]])
        return Selection(clients=clients, candidates=context.available, u=ties, g=ties)

    def observe(self, state, context, report):
        pass


class MutatesState(Sound):
    def select(self, state, context, rng):
        cohort = super().select(state, context, rng)
        state.n[cohort] += 1
        return cohort


class SelectsTwice(Sound):
    def select(self, state, context, rng):
        cohort = super().select(state, context, rng)
        return np.sort(np.append(cohort[1:], cohort[-1:]))


class IgnoresAvailability(Sound):
    def select(self, state, context, rng):
        return np.sort(np.argsort(state.n, kind="stable")[: context.n_invited])


class Unsorted(Sound):
    def select(self, state, context, rng):
        return super().select(state, context, rng)[::-1]


class OneTooFew(Sound):
    def select(self, state, context, rng):
        return super().select(state, context, rng)[1:]


class IgnoresOverSelection(Sound):
    def select(self, state, context, rng):
        return np.sort(rng.permutation(context.available)[: context.target_responses])


class GlobalRandomness(Sound):
    def select(self, state, context, rng):
        n = min(context.n_invited, len(context.available))
        return np.sort(np.random.choice(context.available, n, replace=False))  # noqa: NPY002


class OwnRandomness(Sound):
    def select(self, state, context, rng):
        return super().select(state, context, np.random.default_rng())


class NeedsResponses(Sound):
    def observe(self, state, context, report):
        fastest = report.latency_s.min()  # there may be no response
        state.n[report.invited] += 1 + int(fastest < 0)


class NeedsLatencies(Sound):
    """A failure may have no latency."""

    def init(self, n_clients):
        return Counts(np.zeros(n_clients))

    def observe(self, state, context, report):
        state.n[report.invited] += 1
        state.n[report.clients] += 0.0 * report.latency_s


class NeedsUndeclaredLosses(NeedsLatencies):
    def observe(self, state, context, report):
        state.n[report.invited] += 1
        state.n[report.clients[report.usable]] += report.loss[report.usable]


class NeedsUndeclaredSamples(Sound):
    def select(self, state, context, rng):
        assert len(context.pool.sizes)
        return super().select(state, context, rng)


class NeedsUnknownWord(Sound):
    needs = LOSS | {"gradients"}


class StateIsADict(Sound):
    def init(self, n_clients):
        return {"n": np.zeros(n_clients, dtype=np.int64)}


class StateHoldsAList(Sound):
    def init(self, n_clients):
        return Counts([0] * n_clients)


class Floats(Sound):
    def select(self, state, context, rng):
        return super().select(state, context, rng).astype(float)


class CannotSelectAll(Sound):
    def select(self, state, context, rng):
        order = np.argpartition(state.n[context.available], context.n_invited)
        return np.sort(context.available[order[: context.n_invited]])


class LearnsInItself(Sound):
    def __init__(self):
        self.n = np.zeros(0, dtype=np.int64)

    def select(self, state, context, rng):
        self.n = np.append(self.n, np.zeros(40 - len(self.n), dtype=np.int64))
        return super().select(Counts(self.n), context, rng)

    def observe(self, state, context, report):
        self.n[report.invited] += 1


class RemembersInAList(Sound):
    def __init__(self):
        self.past = []

    def select(self, state, context, rng):
        late = len(self.past) % 12 // 6
        return super().select(Counts(state.n * late), context, rng)

    def observe(self, state, context, report):
        self.past.append(context.round)
        super().observe(state, context, report)


class Cools(Sound):
    epsilon = 1.0

    def select(self, state, context, rng):
        self.epsilon *= 0.99
        return super().select(state, context, rng)


class ReturnsItsState(Sound):
    def observe(self, state, context, report):
        n = state.n.copy()
        n[report.invited] += 1
        return Counts(n)


class ChangesTheReport(Sound):
    def observe(self, state, context, report):
        report.latency_s[:] = 0.0
        super().observe(state, context, report)


class ChangesTheCounts(Sound):
    def observe(self, state, context, report):
        context.task.invitations[report.invited] += 1


class ChangesAllClients(Sound):
    def observe(self, state, context, report):
        state.n += 1


class WrongSignature(Sound):
    def select(self, state, available, m, rng):
        return available[:m]


class SharesItsState(Sound):
    shared = Counts(np.zeros(40, dtype=np.int64))

    def init(self, n_clients):
        return self.shared


class HasRoomForFifty(Sound):
    def init(self, n_clients):
        return Counts(np.zeros(50, dtype=np.int64))


class ShufflesTheContext(Sound):
    def select(self, state, context, rng):
        rng.shuffle(context.available)
        return np.sort(context.available[: context.n_invited])


class SelectionOfTheState(Sound):
    def select(self, state, context, rng):
        cohort = super().select(state, context, rng)
        n = len(state.n)
        return Selection(clients=cohort, candidates=np.arange(n), u=np.zeros(n), g=state.n)


class PrefersUnresponsiveClients(Sound):
    """No response looks like a latency of 0."""

    def init(self, n_clients):
        return Counts(np.zeros(n_clients))

    def select(self, state, context, rng):
        n = state.n[context.available] + 1e-9 * rng.random(len(context.available))
        return np.sort(context.available[np.argsort(n)[: context.n_invited]])

    def observe(self, state, context, report):
        state.n[report.clients[report.responded]] += report.latency_s[report.responded]


class WeighsWithNan(Sound):
    def weights(self, state, context, clients):
        return np.full(len(clients), np.nan)


class WeighsOnce(Sound):
    def weights(self, state, context, clients):
        return 1.0


class DiagnosesATuple(Sound):
    def diagnostics(self, state, context):
        return (1.0, 2.0)


FAULTS = {
    MutatesState: "select_without_changes: select changed the state",
    SelectsTwice: "select_valid_cohorts: a client was selected twice",
    IgnoresAvailability: "select_valid_cohorts: clients were selected that are not available",
    Unsorted: "select_valid_cohorts: the cohort is not sorted",
    OneTooFew: "select_valid_cohorts: 3 clients were selected instead of 4",
    IgnoresOverSelection: "select_more_than_the_target: 4 clients were selected instead of 7",
    GlobalRandomness: "repeat_with_equal_generators: .* it used numpy's global generator",
    OwnRandomness: "repeat_with_equal_generators: equal generators gave different cohorts",
    NeedsResponses: "accept_rounds_without_responses: .* a report without responses: ValueError",
    NeedsLatencies: "accept_failures: n of the state holds a NaN",
    NeedsUndeclaredLosses: "declare_what_it_needs: n of the state holds a NaN",
    NeedsUndeclaredSamples: "declare_what_it_needs: needs does not name loss or samples, but",
    NeedsUnknownWord: "declare_what_it_needs: needs must hold words of .* got .*gradients",
    StateIsADict: "have_a_storable_state: the state .* must be a dataclass .* got dict",
    StateHoldsAList: "have_a_storable_state: n of the state .* must be an array .* got list",
    Floats: "select_valid_cohorts: select must return whole numbers, got float64",
    CannotSelectAll: r"run_with_all_clients: ValueError: kth\(=12\) out of bounds",
    LearnsInItself: "learn_in_the_state_alone: a run changed n of the policy itself",
    RemembersInAList: "learn_in_the_state_alone: a run changed past of the policy itself",
    Cools: "learn_in_the_state_alone: a run changed epsilon of the policy itself",
    ReturnsItsState: "change_only_the_state: .* it returns is ignored, got Counts",
    ChangesTheReport: "change_only_the_state: observe changed latency_s of the report",
    ChangesTheCounts: "ValueError: .* is read-only",
    ChangesAllClients: "change_only_reported_clients: observe changed n of clients that are not",
    WrongSignature: "TypeError: .*; the same in .* other rules",
    SharesItsState: "learn_in_the_state_alone: ",
    HasRoomForFifty: "run_with_1000_clients: IndexError: .* out of bounds",
    ShufflesTheContext: "select_without_changes: select changed context.available",
    SelectionOfTheState: "explain_the_selection: the selection would change with n of the state",
    PrefersUnresponsiveClients: "avoid_unresponsive_clients: 4 of 10 clients, which are never",
    WeighsWithNan: "weigh_updates: weights must be finite and not below 0",
    WeighsOnce: "weigh_updates: weights must be one number per client, got 1.0 for 4 clients",
    DiagnosesATuple: "return_diagnostics: diagnostics must return a dict",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_named(fault):
    with pytest.raises(AssertionError, match=FAULTS[fault]) as raised:
        check_policy(fault())
    assert re.match(rf"{fault.__name__} breaks \d+ of {len(CHECKS)} rules:\n", str(raised.value))


@pytest.mark.parametrize("policy", [Sound(), SoundWithoutState()], ids=["state", "None"])
def test_a_sound_policy_passes(policy):
    check_policy(policy)


def test_what_is_no_policy_gets_a_clear_message():
    with pytest.raises(AssertionError, match=r"got the class Sound; did you mean Sound\(\)\?"):
        check_policy(Sound)

    class Rule:
        """It has all methods, and not the defaults of the others."""

        init, select, observe = Sound.init, Sound.select, Sound.observe

    with pytest.raises(AssertionError, match=r"subclass of bsfl.Policy.*; write class Rule\(bsfl"):
        check_policy(Rule())
    with pytest.raises(AssertionError, match="make_policy makes one by its name"):
        check_policy("random")
