"""Policies x seeds, in parallel, resumable."""

import os
import platform
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.extras import in_parallel, optional_module
from bsfl.files import alone_in
from bsfl.fleet import Fleet
from bsfl.learning.task import Evaluation, Params, Task, Update
from bsfl.policies import Policy
from bsfl.records import FloatArray, IntArray, Report, RoundContext, RoundRecord
from bsfl.runs.checkpoint import Checkpointed
from bsfl.runs.results import Results, older_results
from bsfl.scenario import Scenario
from bsfl.scenario.learning_spec import LearningSpec
from bsfl.scenario.tables import at
from bsfl.simulation import simulate
from bsfl.state import State

XLA_THREADS = "PJRT_NPROC"
"""Environment variable that says how many threads XLA has in a process, read when JAX starts."""

XLA_PROGRAMS = "JAX_COMPILATION_CACHE_DIR"
"""Environment variable that says where JAX keeps compiled programs, read when JAX starts."""


def run_scenario(
    scenario: Scenario, folder: str | Path, *, seeds: int | None = None, jobs: int = -1
) -> Results:
    """Run what is missing in the folder and return all results.

    Args:
        scenario: What to run.
        folder: Where results are, or will be.
        seeds: How many worlds; None: as many as the scenario says.
        jobs: Processes of joblib; -1: one per core. joblib.parallel_config moves the work to
            another backend, such as a Ray or Dask cluster that shares the folder.
    """
    if jobs == 0 or jobs < -1:
        raise InvalidInput(f"jobs must be -1 or at least 1, got {jobs}")
    folder = Path(folder).absolute()  # workers of a cluster may be at home elsewhere
    n_worlds = scenario.seeds if seeds is None else seeds
    results = Results(folder, scenario, n_worlds, is_older=older_results(folder))
    missing = results.missing()
    workers = xla_threads()
    if scenario.learning and "jax" in scenario.learning.packages:
        keep_programs(workers)
    if missing:
        dry_run(scenario)
    with alone_in(folder):
        results.write_manifest()
    results.is_older = False  # now everything is sealed
    in_parallel(run_one, [(results, *run, workers, os.getpid()) for run in missing], jobs=jobs)
    return results


def xla_threads() -> int:
    """Return how many threads XLA has in a process that trains: 1, unless the user says otherwise.

    Processes that keep to one core each do not wait for each other, and sums of numbers have the
    same order, and so the same last digits, however many cores or processes there are.
    """
    asked = os.environ.setdefault(XLA_THREADS, "1")
    if not asked.isdecimal() or int(asked) == 0:
        raise InvalidInput(
            f"the environment variable {XLA_THREADS} must be 1, 2, ...; got {asked!r}"
        )
    return int(asked)


def keep_programs(workers: int) -> None:
    """Let processes find what another one compiled, unless the user says where, or "" for nowhere.

    A program is compiled for a processor and a number of threads, so each has a folder of its own.
    """
    cache = Path(optional_module("platformdirs").user_cache_dir("bsfl", appauthor=False))
    folder = cache / "programs" / f"{platform.node()}-{workers}"
    os.environ.setdefault(XLA_PROGRAMS, str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def dry_run(scenario: Scenario) -> None:
    """Play one round of every policy, so that what is wrong shows before anything is written."""
    with at(scenario.name):
        fleet = scenario.world(0)
    with at(f"{scenario.name} [learning]"):
        training = scenario.training(0)
    if training:
        training.task = Untrained(training.task)
    for label in scenario.policies:
        with at(f"{scenario.name} [policies.{label}]"):
            policy, objective = scenario.policy(label, fleet), scenario.objective
            list(play(scenario, policy, fleet, rounds=1, objective=objective, training=training))


def play(
    scenario: Scenario, policy: Policy, fleet: Fleet, world: int = 0, **parts: Any
) -> Iterator[RoundRecord]:
    """Yield the rounds of a policy in one world of a scenario; for `parts` see simulate."""
    length: dict[str, Any] = {"rounds": scenario.rounds, "time_s": scenario.time_s} | parts
    policy_seed = scenario.first_seed + world
    length |= {"cohort_size": scenario.cohort_size, "plan": scenario.plan}
    return simulate(policy, fleet, seed=policy_seed, **length)


class Untrained:
    """A task whose clients report losses without training, for a rehearsal."""

    def __init__(self, task: Task) -> None:
        self.n_clients, self.samples = task.n_clients, task.samples

    def init(self, seed: int) -> Params:
        return None

    def train(self, params: Params, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        return [
            Update(client=k, params=params, loss=1.0, samples=int(self.samples[k]))
            for k in clients.tolist()
        ]

    def aggregate(self, params: Params, updates: Sequence[Update], weights: FloatArray) -> Params:
        return None

    def evaluate(self, params: Params) -> Evaluation:
        return Evaluation(loss=1.0)


def run_one(results: Results, label: str, world: int, workers: int, parent: int) -> None:
    """Play one policy in one world and write its records.

    An interrupted run is played again from its first round, without the training that is on disk
    already, and only what is missing is written. `workers` clients train at the same time, on as
    many threads of XLA; a child of the process `parent` stops when that is gone.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and os.getppid() == parent:  # Ctrl-C reaches all: the parent alone ends the others
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[XLA_THREADS] = str(workers)
    scenario = results.scenario
    run_file = results.run_file(label, world)
    fleet = scenario.world(world)
    training = scenario.training(world, workers=workers)
    if training and isinstance(scenario.learning, LearningSpec):  # others may look like anything
        training.task = Checkpointed(training.task, run_file.checkpoint)
    policy = Timed(scenario.policy(label, fleet))
    parts: Any = {"objective": scenario.objective, "training": training}
    records = play(scenario, policy, fleet, world, **parts)
    with at(f"{scenario.name} [policies.{label}], seed {scenario.first_seed + world}"):
        run_file.append(while_alive(parent, records), policy.mean_s)
    run_file.checkpoint.unlink(missing_ok=True)


class Timed:
    """A policy with a stop watch; the simulation itself reads no clock."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.seconds, self.rounds = policy, 0.0, 0
        self.weights = getattr(policy, "weights", None)
        self.chooses_fewer = getattr(policy, "chooses_fewer", False)

    def init(self, n_clients: int) -> State:
        return self.policy.init(n_clients)

    def mean_s(self) -> float | None:
        """Return the seconds that selecting and observing took in a round; None: there was none."""
        return self.seconds / self.rounds if self.rounds else None

    def select(self, state: State, context: RoundContext, rng: np.random.Generator) -> IntArray:
        start = time.perf_counter()
        cohort = self.policy.select(state, context, rng)
        self.seconds += time.perf_counter() - start
        self.rounds += 1
        return cohort

    def observe(self, state: State, context: RoundContext, report: Report) -> None:
        start = time.perf_counter()
        self.policy.observe(state, context, report)
        self.seconds += time.perf_counter() - start


def while_alive(parent: int, records: Iterable[RoundRecord]) -> Iterator[RoundRecord]:
    """Pass records on; in a child of `parent`, only as long as the parent lives."""
    is_child = os.getppid() == parent
    for record in records:
        if is_child and os.getppid() != parent:
            os._exit(1)  # nobody is left to report to, and an exception would keep the worker
        yield record
