"""A user's file that imports only public names passes mypy --strict."""

import subprocess
import sys

import pytest

from bsfl.cli.new import write_start

USER = '''
"""What a user might write, with types."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import bsfl
from bsfl import (
    BSFL,
    Comparison,
    Floor,
    IntArray,
    Observation,
    Pace,
    Policy,
    Report,
    Rng,
    RoundContext,
    Scheduler,
    UniformRandom,
    compare,
)
from bsfl.errors import BsflError, InvalidInput
from bsfl.fleet import Fleet, Sampled, lognormal
from bsfl.learning import Evaluation, Update
from bsfl.runs import Results, open_results
from bsfl.scenario import Scenario, find_scenario
from bsfl.testing import check_policy


@dataclass
class Counts:
    chosen: IntArray


@dataclass(frozen=True)
class LeastServed:
    """Choose who was chosen least so far."""

    patience: int = 3

    def init(self, n_clients: int) -> Counts:
        return Counts(np.zeros(n_clients, dtype=np.int64))

    def select(self, state: Counts, context: RoundContext, rng: Rng) -> IntArray:
        order = np.argsort(state.chosen[context.available], kind="stable")
        return np.sort(context.available[order[: context.cohort_size]])

    def observe(self, state: Counts, context: RoundContext, report: Report) -> None:
        state.chosen[report.chosen] += 1


def loop() -> list[str]:
    scheduler = Scheduler(cohort_size=2, seed=1)
    cohort: list[str] = scheduler.select(available=["a", "b", "c"])
    scheduler.observe({cohort[0]: 3.2, cohort[1]: Observation(latency=60.0, outcome="timeout")})
    times: dict[str, float] = dict.fromkeys(scheduler.select(), 2.5)
    refused: dict[str, str] = scheduler.observe(times)
    print(refused)
    scheduler.save(Path("state.bsfl"))
    print(Scheduler.load("state.bsfl").summary(), scheduler.table())
    return cohort


def meet(fleet: Fleet) -> Comparison:
    policies: dict[str, str | type[Policy] | Policy] = {
        "mine": LeastServed(),
        "floor": BSFL(alpha=Floor(0.8)),
        "pace": Pace,
        "random": "random",
    }
    found = compare(policies, fleet, seeds=2, rounds=10, cohort_size=3, folder="out")
    print(found.verdict(), found.table().markdown(), found.report("page.html"))
    print(bsfl.compare([LeastServed(), "pace", UniformRandom()], "phones", rounds=3))
    results: Results = found.results
    scenario: Scenario = find_scenario("phones")
    print(open_results(Path("out")).seeds, results.seeds, scenario.title)
    return found


def fleet() -> Fleet:
    steady = lognormal(np.geomspace(1.0, 9.0, 20), np.full(20, 0.1))
    wild = Sampled(20, lambda t, rng: 0.1 + rng.gamma(2.0, 3.0, 20))
    return Fleet(latency=steady if len(loop()) else wild, tau_min=0.1, tau_max=60.0)


try:
    check_policy(LeastServed())
    meet(fleet())
except InvalidInput as mistake:
    print(mistake)
except BsflError as other:
    raise SystemExit(2) from other
'''


@pytest.mark.slow
def test_public_names_have_types(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    for what, name in (("policy", "LeastServed"), ("task", "MyTask"), ("scenario", "my-fleet")):
        write_start(what, name, tmp_path)
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / ".cache")]
    done = subprocess.run([*words, *files], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"Success: no issues found in {len(files)} source files\n", done.stdout
    assert len(files) == 6
