"""A user's file that imports only public names passes mypy --strict."""

import subprocess
import sys

import pytest

from bsfl.cli.new import copy_example

USER = '''
"""What a user might write, with types."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import bsfl
from bsfl import (
    BSFL, ClosedRound, Comparison, IntArray, MinParticipation, Observation, Pace, Policy,
    PolicyWrapper, Rng, RoundContext, RoundPlan, RoundRecord, RoundReport, Scheduler,
    Selection, UniformRandom, compare,
)
from bsfl.errors import BsflError, InvalidInput
from bsfl.simulation import SimulatedClients, Sampled, lognormal
from bsfl.learning import Evaluation, Update
from bsfl.experiments import Results, Scenario, open_results, read_scenario
from bsfl.testing import PolicyDriver, check_policy
from bsfl.types import State


@dataclass
class Counts:
    selected: IntArray


@dataclass(frozen=True)
class LeastSelected(Policy):
    """Select the clients that were selected least so far."""

    patience: int = 3

    def init(self, n_clients: int) -> Counts:
        return Counts(np.zeros(n_clients, dtype=np.int64))

    def select(self, state: Counts, context: RoundContext, rng: Rng) -> IntArray | Selection:
        order = np.argsort(state.selected[context.available], kind="stable")
        clients = np.sort(context.available[order[: context.n_invited]])
        return Selection(clients=clients) if context.round > self.patience else clients

    def observe(self, state: Counts, context: RoundContext, report: RoundReport) -> None:
        state.selected[report.invited] += 1

    def close(self, state: Counts, context: RoundContext, closed: ClosedRound) -> None:
        state.selected[closed.aggregated] += context.task.participations[closed.aggregated]

    def diagnostics(self, state: Counts, context: RoundContext) -> dict[str, float]:
        return {"least": float(state.selected.min(initial=0))}


class Counting(PolicyWrapper):
    n_rounds = 0

    def select(self, state: State, context: RoundContext, rng: Rng) -> IntArray | Selection:
        self.n_rounds += 1
        return super().select(state, context, rng)


def loop() -> list[str]:
    scheduler = Scheduler(Counting(LeastSelected()), cohort_size=2, seed=1)
    cohort = scheduler.select(available=["a", "b", "c"])
    scheduler.observe({cohort[0]: 3.2, cohort[1]: Observation(latency_s=60.0, outcome="timeout")})
    times: dict[str, float] = dict.fromkeys(scheduler.select(), 2.5)
    rejected: dict[str, str] = scheduler.observe(times, round=scheduler.round)
    print(rejected, cohort.round, cohort.n_invited, cohort.target_responses)
    last: RoundRecord | None = scheduler.last_round
    scheduler.plan = RoundPlan(target_responses=3, late="drop")
    scheduler.close(aggregated=list(times))
    print(last, [one.pending for one in scheduler.pending()])
    scheduler.save(Path("state.bsfl"))
    print(Scheduler.load("state.bsfl").summary(), scheduler.table())
    return cohort


def run(fleet: SimulatedClients) -> Comparison:
    policies: dict[str, str | type[Policy] | Policy] = {
        "mine": LeastSelected(),
        "min-participation": BSFL(alpha=MinParticipation(0.8)),
        "pace": Pace,
        "random": "random",
    }
    found = compare(policies, fleet, seeds=2, rounds=10, cohort_size=3, folder="out")
    print(found.headline(), found.table().to_markdown(), found.report("page.html"))
    print(bsfl.compare([LeastSelected(), "pace", UniformRandom()], "phones", rounds=3))
    results: Results = found.results
    scenario: Scenario = read_scenario("phones")
    print(open_results(Path("out")).seeds, results.seeds, scenario.title)
    return found


def fleet() -> SimulatedClients:
    steady = lognormal(np.geomspace(1.0, 9.0, 20), np.full(20, 0.1))
    wild = Sampled(20, lambda t, rng: 0.1 + rng.gamma(2.0, 3.0, 20))
    return SimulatedClients(latency=steady if len(loop()) else wild, tau_min=0.1, tau_max=60.0)


driver = PolicyDriver(LeastSelected(), n_clients=3, target_responses=1, samples=[1, 2, 3])
print(driver.run_round({0: 1.5}), driver.select(available=[1, 2]))

try:
    check_policy(LeastSelected())
    run(fleet())
except InvalidInput as mistake:
    print(mistake)
except BsflError as other:
    raise SystemExit(2) from other
'''


@pytest.mark.slow
def test_public_names_have_types(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    for what, name in (
        ("policy", "LeastSelected"),
        ("task", "TheirTask"),
        ("scenario", "my-fleet"),
    ):
        copy_example(what, name, tmp_path)
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / ".cache")]
    done = subprocess.run([*words, *files], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"Success: no issues found in {len(files)} source files\n", done.stdout
    assert len(files) == 6
