"""Runs policies x seeds, in parallel; what is finished is kept."""

import logging
import os
import platform
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from bsfl.errors import InvalidInput, WorkerDied
from bsfl.experiments.parallel import unordered_results
from bsfl.experiments.parts import at
from bsfl.experiments.progress import Meter, shown
from bsfl.experiments.results import Results, Run, as_records, versions_now
from bsfl.experiments.scenario import Scenario
from bsfl.extras import optional_module
from bsfl.learning.task import Evaluation, Params, Task, Update
from bsfl.policy import Policy, PolicyWrapper, Selection
from bsfl.simulation.clients import SimulatedClients
from bsfl.simulation.simulate import simulate
from bsfl.types import FloatArray, IntArray, Rng, RoundContext, RoundRecord, RoundReport, State
from bsfl.validation import natural, short

_LOG = logging.getLogger("bsfl")

XLA_THREADS = "PJRT_NPROC"
"""Environment variable that says how many threads XLA has in a process, read when JAX starts."""

XLA_PROGRAMS = "JAX_COMPILATION_CACHE_DIR"
"""Environment variable that says where JAX keeps compiled programs, read when JAX starts."""


def run_scenario(
    scenario: Scenario,
    folder: str | Path,
    *,
    seeds: int | None = None,
    jobs: int = -1,
    progress: bool = False,
) -> Results:
    """Run what is missing in the folder and return all results.

    Every run is written when it is finished, by this process. After Ctrl-C, or if a worker was
    killed, the same call runs the rest.

    Args:
        scenario: What to run.
        folder: Where results are, or will be.
        seeds: Number of seeds; None: as the scenario says.
        jobs: Processes of joblib; -1: one per core. Within joblib.parallel_config, the workers of
            another backend, such as a Dask or Ray cluster; they need not see the folder.
        progress: Whether to show progress.
    """
    [results] = run_scenarios({Path(folder): scenario}, seeds=seeds, jobs=jobs, progress=progress)
    return results


def run_scenarios(
    scenarios: Mapping[Path, Scenario],
    *,
    title: str = "",
    seeds: int | None = None,
    jobs: int = -1,
    progress: bool = False,
) -> list[Results]:
    """Run what is missing of several scenarios, by folder, in the same processes.

    Args:
        scenarios: What to run in each folder.
        title: Title of the progress; "": the name of the first scenario.
        seeds, jobs, progress: As for run_scenario.
    """
    for scenario in scenarios.values():
        if not isinstance(scenario, Scenario):
            raise InvalidInput(
                f"scenario must be a Scenario (see read_scenario), got {short(scenario)}"
            )
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs == 0 or jobs < -1:
        raise InvalidInput(f"jobs must be -1 or a whole number of at least 1, got {short(jobs)}")
    found: list[Results] = []
    missing: list[tuple[Results, str, int]] = []
    workers = xla_threads()
    for folder, scenario in scenarios.items():
        if not scenario.policies:
            raise InvalidInput(f"{scenario.name}: there must be at least one policy")
        n_seeds = scenario.seeds if seeds is None else natural("seeds", seeds)
        results = Results(folder.absolute(), scenario, n_seeds)
        own = [(results, *run) for run in results.missing()]
        if scenario.learning and "jax" in scenario.learning.packages:
            keep_programs(workers)
        if own:
            dry_run(scenario)
        results.write_manifest()
        for path in (results.path(label, index) for _, label, index in own):
            if path.exists():
                _LOG.warning("%s is damaged; it is run again", path)
        found.append(results)
        missing += own
    if missing:
        n_before = sum(len(results.runs()) for results in found) - len(missing)
        title = title or found[0].scenario.name
        complete(title, missing, n_before, workers, jobs, progress=progress)
    return found


def complete(
    title: str,
    missing: list[tuple[Results, str, int]],
    n_before: int,
    workers: int,
    jobs: int,
    *,
    progress: bool,
) -> None:
    """Run what is missing and write each run when it is finished."""
    names = [f"{label}, seed {one.scenario.first_seed + index}" for one, label, index in missing]
    n_workers = optional_module("joblib").effective_n_jobs(jobs)
    meter = Meter(title, names, n_before, n_workers)
    calls = [(one.scenario, *run, workers, os.getpid()) for one, *run in missing]
    folder = os.path.commonpath([one.folder for one, *_ in missing])
    try:
        with (
            shown(meter) if progress else nullcontext(),
            closing(unordered_results(run_one, calls, jobs=jobs)) as finished,
        ):
            for i, run in finished:
                results, label, index = missing[i]
                results.write(label, index, run)
                meter.finished(names[i])
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted: {meter.so_far()} are in {folder}; the same command resumes"
        ) from None
    except WorkerDied as error:
        raise WorkerDied(
            f"{error}; {meter.so_far()} are in {folder}, without {'; '.join(meter.left)}. "
            "The same command resumes"
        ) from error


def xla_threads() -> int:
    """Return how many threads XLA has in a process that trains: 1, unless the user says otherwise.

    Processes with one core each do not wait for each other, and sums of numbers have the same
    order, and so the same last digits, with any number of cores and processes.
    """
    value = os.environ.setdefault(XLA_THREADS, "1")
    if not value.isdecimal() or int(value) == 0:
        raise InvalidInput(
            f"the environment variable {XLA_THREADS} must be 1, 2, ...; got {value!r}"
        )
    return int(value)


def keep_programs(workers: int) -> None:
    """Let processes share compiled programs, unless the user says where, or "" for nowhere.

    A program is compiled for a processor and a number of threads, so each has a folder of its own.
    """
    cache = Path(optional_module("platformdirs").user_cache_dir("bsfl", appauthor=False))
    folder = cache / "programs" / f"{platform.node()}-{workers}"
    os.environ.setdefault(XLA_PROGRAMS, str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def dry_run(scenario: Scenario) -> None:
    """Simulate one round of every policy, so that errors show before anything is written."""
    with at(scenario.name):
        fleet = scenario.simulated_clients(0)
    with at(f"{scenario.name} [learning]"):
        training = scenario.training(0)
    if training:
        training.task = Untrained(training.task)
    for label in scenario.policies:
        with at(f"{scenario.name} [policies.{label}]"):
            policy, objective = scenario.policy(label, fleet), scenario.objective
            list(play(scenario, policy, fleet, rounds=1, objective=objective, training=training))


def play(
    scenario: Scenario, policy: Policy, fleet: SimulatedClients, index: int = 0, **parts: Any
) -> Iterator[RoundRecord]:
    """Yield the rounds of a policy with one seed of a scenario; for `parts` see simulate."""
    settings = {key: getattr(scenario, key) for key in ("cohort_size", "rounds", "time_s", "plan")}
    return simulate(policy, fleet, seed=scenario.first_seed + index, **settings | parts)


class Untrained:
    """A task whose clients report losses without training, for a dry run."""

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


def run_one(scenario: Scenario, label: str, index: int, workers: int, parent: int) -> Run:
    """Return one policy with one seed, from the first round to the last.

    `workers` clients train at the same time, on as many threads of XLA; a child of the process
    `parent` stops when the parent is gone.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and os.getppid() == parent:  # Ctrl-C reaches all: the parent alone ends the others
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[XLA_THREADS] = str(workers)
    fleet = scenario.simulated_clients(index)
    training = scenario.training(index, workers=workers)
    policy = Timed(scenario.policy(label, fleet))
    fair_counts: list[FloatArray] = []
    parts: Any = {"objective": scenario.objective, "training": training}
    parts["on_end"] = lambda task: fair_counts.append(task.fair_count.copy())
    rounds = play(scenario, policy, fleet, index, **parts)
    with at(f"{scenario.name} [policies.{label}], seed {scenario.first_seed + index}"):
        records = as_records(while_alive(parent, rounds), scenario)
    return Run(
        records=records,
        fair_count=fair_counts[0],
        selection_s=policy.mean_s(),
        versions=versions_now(scenario),
        ids=None if fleet.ids is None else list(fleet.ids),
    )


class Timed(PolicyWrapper):
    """A policy whose wall-clock time is measured; the simulation itself reads no clock."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.seconds, self.n_rounds = 0.0, 0

    def mean_s(self) -> float | None:
        """Return the seconds that selecting and observing took per round; None before the first."""
        return self.seconds / self.n_rounds if self.n_rounds else None

    def select(self, state: State, context: RoundContext, rng: Rng) -> IntArray | Selection:
        start = time.perf_counter()
        selection = super().select(state, context, rng)
        self.seconds += time.perf_counter() - start
        self.n_rounds += 1
        return selection

    def observe(self, state: State, context: RoundContext, report: RoundReport) -> None:
        start = time.perf_counter()
        super().observe(state, context, report)
        self.seconds += time.perf_counter() - start


def while_alive(parent: int, records: Iterable[RoundRecord]) -> Iterator[RoundRecord]:
    """Pass records on; in a child of `parent`, only as long as the parent lives."""
    is_child = os.getppid() == parent
    for record in records:
        if is_child and os.getppid() != parent:
            os._exit(1)  # no process is left to report to, and an exception would keep the worker
        yield record
