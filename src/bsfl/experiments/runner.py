"""Policies x seeds, in parallel, resumable."""

from pathlib import Path

from bsfl.experiments.results import Results
from bsfl.experiments.scenario import Scenario
from bsfl.extras import optional_imports
from bsfl.simulation import simulate

with optional_imports():
    from joblib import Parallel, cpu_count, delayed, effective_n_jobs


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
    results = Results(folder, scenario, scenario.seeds if seeds is None else seeds)
    results.write_manifest()
    missing = [run for run in results.runs() if results.run_file(*run).progress() < 1]
    if missing:
        scenario.training(seed=0)  # what is wrong with it shows before anything runs
    # clients of a cohort train on the cores that the processes leave free
    workers = max(1, cpu_count() // min(effective_n_jobs(jobs), max(1, len(missing))))
    Parallel(n_jobs=jobs)(delayed(run_one)(results, *run, workers) for run in missing)
    return results


def run_one(results: Results, label: str, seed: int, workers: int) -> None:
    """Play one policy in one world and write its records.

    An interrupted run is played again from its first round, and only what is missing is written.
    """
    scenario = results.scenario
    fleet = scenario.world(seed)
    records = simulate(
        scenario.policy(label, fleet),
        fleet,
        cohort_size=scenario.cohort_size,
        rounds=scenario.rounds,
        time_s=scenario.time_s,
        seed=seed,
        objective=scenario.objective,
        training=scenario.training(seed, workers=workers),
    )
    results.run_file(label, seed).append(records)
