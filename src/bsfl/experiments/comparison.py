"""Compare policies in one call: all of them run with the same scenario and the same seeds.

import bsfl

comparison = bsfl.compare(["pace", "bsfl", "random"], "phones", seeds=3)
print(comparison)
comparison.to_frame()
"""

import math
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bsfl import validation
from bsfl._core.registry import absolute_reference, is_reference
from bsfl.errors import InvalidInput
from bsfl.experiments.files import find_scenario, of_length
from bsfl.experiments.given import GivenClients, GivenTask, described, described_fleet, policy_entry
from bsfl.experiments.headline import headline
from bsfl.experiments.parse import check_label, parse_scenario
from bsfl.experiments.results import Results
from bsfl.experiments.round_spec import SynchronousRounds
from bsfl.experiments.runner import run_scenario
from bsfl.experiments.scenario import MAX_ROUNDS, Scenario
from bsfl.experiments.summary import summarise
from bsfl.experiments.tables import Table, summary_table
from bsfl.experiments.toml_tables import at
from bsfl.extras import optional_imports, optional_module
from bsfl.frame import text
from bsfl.learning import Task
from bsfl.policies import POLICIES, Policy
from bsfl.simulation.clients import SimulatedClients
from bsfl.types import Rng

AnyPolicy = str | type[Policy] | Policy
"""A name from `bsfl policies`, "mine.py:Class", a class, or a policy with its settings."""
ScenarioOrFleet = str | Path | Scenario | SimulatedClients | Callable[[int], SimulatedClients]
"""A scenario by name or file, or a fleet: one for all seeds, or a function of the seed."""
AnyTask = Task | Callable[[int, Rng], Task]
"""A task for all seeds, or a function (n_clients, rng) that creates the task of a seed."""


def compare(
    policies: AnyPolicy | Iterable[AnyPolicy] | Mapping[str, AnyPolicy],
    scenario_or_fleet: ScenarioOrFleet,
    task: AnyTask | None = None,
    *,
    seeds: int = 5,
    rounds: int | None = None,
    time_s: float | None = None,
    cohort_size: int | None = None,
    folder: str | Path | None = None,
    jobs: int = -1,
    progress: bool = True,
) -> "Comparison":
    """Run policies with the same scenario and seeds, and return their results.

    >>> found = compare(["pace", "random"], "phones", seeds=2, rounds=20, jobs=1, progress=False)
    >>> list(found.summary.policies)
    ['pace', 'random']

    Args:
        policies: One policy, several, or a dict of label: policy. Each is a name from `bsfl
            policies`, "mine.py:Class", a class, or an instance with custom settings. A policy given
            by name runs with its defaults, not with the settings in the scenario.
        scenario_or_fleet: A name from `bsfl scenarios`, a scenario file, or SimulatedClients, which
            need cohort_size, and rounds or time_s.
        task: What the cohorts train; None: the task of the scenario, if it has one.
        seeds: Number of seeds.
        rounds: Rounds per run; None: from the scenario.
        time_s: Virtual seconds per run, the same for every policy; None: from the scenario.
        cohort_size: Clients in a round; None: from the scenario.
        folder: Folder for the results, which the same call resumes; None: a temporary folder, which
            is deleted with the Comparison.
        jobs: Number of processes; -1: one per core.
        progress: Whether to show progress.
    """
    optional_module("joblib")  # fail before any run starts
    entries = _entries(policies)
    length = {"rounds": rounds, "time_s": time_s, "cohort_size": cohort_size}
    if isinstance(scenario_or_fleet, SimulatedClients) or (
        callable(scenario_or_fleet) and not isinstance(scenario_or_fleet, Scenario)
    ):
        scenario = _of_fleet(scenario_or_fleet, length)
    else:
        scenario = _of_scenario(scenario_or_fleet, length, is_trained=task is None)
    if task is not None:
        scenario = _with_task(scenario, task)
    scenario = _with_policies(scenario, entries)
    validation.natural("seeds", seeds)
    if folder is None:
        kept, is_temporary = Path(tempfile.mkdtemp(prefix="bsfl-compare-")), True
    else:
        kept, is_temporary = Path(folder).expanduser(), False
    try:
        found = Comparison(run_scenario(scenario, kept, seeds=seeds, jobs=jobs, progress=progress))
    except BaseException as error:
        if is_temporary:
            shutil.rmtree(kept, ignore_errors=True)
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt("interrupted; folder= keeps finished runs") from None
        raise
    if is_temporary:
        weakref.finalize(found, shutil.rmtree, kept, ignore_errors=True)
    return found


class Comparison:
    """Results of policies with the same seeds. It prints as a headline and a table.

    Attributes:
        results: The records of every run; results.to_frame() has one row per round.
        summary: Every metric of every policy, seed by seed.
    """

    def __init__(self, results: Results) -> None:
        self.results, self.summary = results, summarise(results)

    def table(self) -> Table:
        """Return one row per policy, with means and 95 % intervals over the seeds."""
        return summary_table(self.summary, "report")

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per policy and seed, one column per metric."""
        return self.summary.to_frame()

    def headline(self) -> str:
        """Return which policy is first and by how much, in a few sentences."""
        return "\n".join([*headline(self.summary), *self.summary.warnings()])

    def plot(self) -> Any:
        """Return the main matplotlib figure.

        It shows the model's quality over time; without training, round times and participation.
        """
        with optional_imports():
            from bsfl.report import figures_matplotlib
            from bsfl.report.scenario import learning_plot, time_plot
        return figures_matplotlib.draw(
            (learning_plot if self.summary.target else time_plot)(self.results)
        )

    def report(self, path: str | Path) -> Path:
        """Write one page if the path ends in .html, otherwise a folder; return the path."""
        with optional_imports():
            from bsfl.report import scenario_report
        report, path = scenario_report(self.results), Path(path).expanduser()
        if path.suffix == ".html":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(report.page(), "utf-8")
            return path
        report.write(path)
        return path

    def __str__(self) -> str:
        return f"{self.headline()}\n\n{self.table()}"

    def __repr__(self) -> str:
        labels = ", ".join(self.summary.policies)
        n = self.summary.seeds
        return f"<Comparison of {labels} with {n} seed{'s' * (n > 1)}>"

    def _repr_html_(self) -> str:
        """Return the headline and the table for a notebook."""
        return f"<p>{text(self.headline())}</p>{self.table()._repr_html_()}"


def _entries(policies: Any) -> dict[str, Any]:
    """Return the given policies by label; without a dict, their names are the labels."""
    if isinstance(policies, Mapping):
        found = dict(policies)
    else:
        is_one = isinstance(policies, str | type) or not isinstance(policies, Iterable)
        found = {}
        for one in [policies] if is_one else policies:
            label = _label(one)
            if label in found:
                raise InvalidInput(
                    f"two policies are called {label!r}; name them with a dict of label: policy"
                )
            found[label] = one
    if not found:
        raise InvalidInput("there must be at least one policy")
    for label, one in found.items():
        check_label(label)
        if is_reference(one):
            found[label] = absolute_reference(one, Path.cwd())
    return found


def _label(policy: Any) -> str:
    if isinstance(policy, str):
        return policy.rpartition(":")[2] if is_reference(policy) else policy
    name = POLICIES.name_of(policy)
    return name or (policy if isinstance(policy, type) else type(policy)).__name__


def _of_scenario(
    given: str | Path | Scenario, length: Mapping[str, Any], *, is_trained: bool
) -> Scenario:
    """Return a scenario with another length and a placeholder for its policies."""
    scenario = given if isinstance(given, Scenario) else find_scenario(str(given))
    source = of_length(scenario, rounds=length["rounds"], time_s=length["time_s"])
    if length["cohort_size"] is not None:
        source["cohort_size"] = length["cohort_size"]
    if not is_trained:
        source.pop("learning", None)
    source["policies"] = {"random": {}}
    return parse_scenario(source, name=scenario.name, file=scenario.name)


def _of_fleet(
    given: SimulatedClients | Callable[[int], SimulatedClients], length: Mapping[str, Any]
) -> Scenario:
    """Return a scenario for a fleet given as an object."""
    if length["cohort_size"] is None or (length["rounds"] is None and length["time_s"] is None):
        raise InvalidInput("a fleet needs cohort_size=..., and rounds=... or time_s=...")
    fleet, first_seed = (
        GivenClients(given),
        given.seed if isinstance(given, SimulatedClients) else 0,
    )
    m = validation.natural("cohort_size", length["cohort_size"])
    validation.cohort_fits(m, fleet.n_clients)
    title, rounds, time_s = "A fleet", length["rounds"], length["time_s"]
    written = {key: value for key, value in length.items() if value is not None}
    return Scenario(
        name="fleet",
        title=title,
        rounds=MAX_ROUNDS if rounds is None else validation.natural("rounds", rounds),
        time_s=math.inf if time_s is None else validation.positive("time_s", time_s),
        cohort_size=m,
        seeds=1,
        first_seed=first_seed,
        fleet=fleet,
        plan=SynchronousRounds().plan(m, fleet.tau_max),
        objective=None,
        learning=None,
        policies={},
        source={"title": title, **written, "fleet": described_fleet(fleet, first_seed)},
    )


def _with_task(scenario: Scenario, task: AnyTask) -> Scenario:
    learning = GivenTask(given=task)
    learning.task(scenario.fleet.n_clients, scenario.first_seed)
    source = {**scenario.source, "learning": described(task)}
    return replace(scenario, learning=learning, source=source)


def _with_policies(scenario: Scenario, given: Mapping[str, Any]) -> Scenario:
    """Return the scenario with these policies, after checking that they can run in it."""
    policies, tables = {}, {}
    for label, one in given.items():
        maker, settings, tables[label] = policy_entry(one)
        policies[label] = maker, settings
    changed = replace(scenario, policies=policies, source={**scenario.source, "policies": tables})
    fleet = changed.build_fleet(0)
    for label in policies:
        with at(f"{scenario.name} [policies.{label}]"):
            changed.check_needs(changed.policy(label, fleet))
    return changed
