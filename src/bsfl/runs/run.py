"""Policies x seeds, in parallel, resumable."""

import os
import platform
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.extras import optional_imports, optional_module
from bsfl.files import alone_in, replace_file
from bsfl.learning.task import Evaluation, Params, Task, Update
from bsfl.policies import Policy
from bsfl.records import FloatArray, IntArray, Report, RoundContext, RoundRecord
from bsfl.runs.checkpoint import Checkpointed
from bsfl.runs.results import Results
from bsfl.scenario.scenario import Scenario, at
from bsfl.simulation import simulate
from bsfl.state import State

with optional_imports():
    from joblib import Parallel, delayed

XLA_THREADS = "PJRT_NPROC"
"""Environment variable that says how many threads XLA has in a process, read when JAX starts."""

XLA_PROGRAMS = "JAX_COMPILATION_CACHE_DIR"
"""Environment variable that says where JAX keeps compiled programs, read when JAX starts."""


def run_scenario(
    scenario: Scenario, folder: Path, *, seeds: int | None = None, jobs: int = -1
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
    results = Results(folder, scenario, scenario.seeds if seeds is None else seeds)
    missing = [run for run in results.runs() if results.run_file(*run).progress() < 1]
    workers = xla_threads()
    if scenario.learning:
        keep_programs(workers)
    if missing:
        dry_run(scenario)
    with alone_in(folder):
        results.write_manifest()
    Parallel(n_jobs=jobs)(delayed(run_one)(results, *run, workers, os.getpid()) for run in missing)
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
        fleet = scenario.world(seed=0)
    with at(f"{scenario.name} [learning]"):
        training = scenario.training(seed=0)
    if training:
        training.task = Untrained(training.task)
    for label in scenario.policies:
        with at(f"{scenario.name} [policies.{label}]"):
            list(
                simulate(
                    scenario.policy(label, fleet),
                    fleet,
                    cohort_size=scenario.cohort_size,
                    rounds=1,
                    objective=scenario.objective,
                    training=training,
                )
            )


class Untrained:
    """A task whose clients report losses without training, for a rehearsal."""

    def __init__(self, task: Task) -> None:
        self.n_clients, self.samples = task.n_clients, task.samples

    def init(self, seed: int) -> Params:
        """Return no model."""

    def train(self, params: Params, clients: IntArray, *, t: int, seed: int) -> list[Update]:
        """Return a loss for everyone, as real training would."""
        return [
            Update(client=k, params=params, loss=1.0, samples=int(self.samples[k]))
            for k in clients.tolist()
        ]

    def aggregate(self, params: Params, updates: Sequence[Update], weights: FloatArray) -> Params:
        """Return no model."""

    def evaluate(self, params: Params) -> Evaluation:
        """Return any number: nobody reads it."""
        return Evaluation(loss=1.0)


def run_one(results: Results, label: str, seed: int, workers: int, parent: int) -> None:
    """Play one policy in one world and write its records.

    An interrupted run is played again from its first round, without the training that is on disk
    already, and only what is missing is written.

    Args:
        results: Where to write.
        label: The policy.
        seed: The world.
        workers: Clients that train at the same time, and threads that XLA has for them.
        parent: Process that asked for this; a child of it stops when it is gone.
    """
    if os.getppid() == parent:  # Ctrl-C reaches all processes: the parent alone ends the others
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[XLA_THREADS] = str(workers)
    scenario = results.scenario
    run_file = results.run_file(label, seed)
    fleet = scenario.world(seed)
    if training := scenario.training(seed, workers=workers):
        training.task = Checkpointed(training.task, run_file.checkpoint)
    policy = Timed(scenario.policy(label, fleet))
    records = simulate(
        policy,
        fleet,
        cohort_size=scenario.cohort_size,
        rounds=scenario.rounds,
        time_s=scenario.time_s,
        seed=scenario.first_seed + seed,
        objective=scenario.objective,
        training=training,
    )
    run_file.append(while_alive(parent, records))
    run_file.checkpoint.unlink(missing_ok=True)
    if policy.rounds:
        replace_file(run_file.timing, f"{policy.seconds / policy.rounds:.9f}\n".encode())


class Timed:
    """A policy with a stop watch; the simulation itself reads no clock."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.seconds, self.rounds = policy, 0.0, 0

    def init(self, n_clients: int) -> State:
        """Return the state before the first round."""
        return self.policy.init(n_clients)

    def select(self, state: State, context: RoundContext, rng: np.random.Generator) -> IntArray:
        """Return the cohort, and note how long that took."""
        start = time.perf_counter()
        cohort = self.policy.select(state, context, rng)
        self.seconds += time.perf_counter() - start
        self.rounds += 1
        return cohort

    def observe(self, state: State, context: RoundContext, report: Report) -> None:
        """Learn from a report, and note how long that took."""
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
