"""Compare policies in one call: all of them run with the same scenario and the same seeds.

import bsfl

comparison = bsfl.compare(["pace", "bsfl", "random"], "phones", seeds=3)
print(comparison)
comparison.to_frame()
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bsfl import validation
from bsfl._core.registry import absolute_reference, is_reference
from bsfl.errors import InvalidInput
from bsfl.experiments.headline import headline
from bsfl.experiments.reading import read_scenario
from bsfl.experiments.results import Results
from bsfl.experiments.runner import run_scenario
from bsfl.experiments.scenario import Scenario, parse_scenario
from bsfl.experiments.summary import summarise
from bsfl.experiments.tables import Table, summary_table
from bsfl.extras import optional_imports, optional_module
from bsfl.learning import Task
from bsfl.policies import POLICIES, Policy
from bsfl.simulation.clients import SimulatedClients
from bsfl.types import Rng
from bsfl.validation import short

AnyPolicy = str | type[Policy] | Policy
"""A name from `bsfl policies`, "mine.py:Class", a class, or a policy with its settings."""
ScenarioOrClients = str | Path | Scenario | SimulatedClients | Callable[[int], SimulatedClients]
"""A scenario by name or file, or clients: the same for all seeds, or a function of the seed."""
AnyTask = Task | Callable[[int, Rng], Task]
"""A task for all seeds, or a function (n_clients, rng) that creates the task of a seed."""


def compare(
    policies: AnyPolicy | Iterable[AnyPolicy] | Mapping[str, AnyPolicy],
    scenario: ScenarioOrClients,
    task: AnyTask | None = None,
    *,
    seeds: int | Sequence[int] = 5,
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
        scenario: A name from `bsfl scenarios`, a scenario file or a Scenario; or SimulatedClients,
            which need cohort_size, and rounds or time_s.
        task: What the cohorts train; None: the task of the scenario, if it has one.
        seeds: Number of seeds, or the seeds: they follow each other, as [3, 4].
        rounds: Rounds per run; None: from the scenario.
        time_s: Virtual seconds per run, the same for every policy; None: from the scenario.
        cohort_size: Clients in a round; None: from the scenario.
        folder: Folder for the results, which the same call resumes; None: a temporary folder, which
            is deleted with the Comparison.
        jobs: Number of processes; -1: one per core.
        progress: Whether to show progress.
    """
    optional_module("joblib")  # fail before any run starts
    first_seed, n_seeds = _first_and_number(seeds)
    if task is not None and not (callable(task) or hasattr(task, "aggregate")):
        raise InvalidInput(
            "task must be a task, or a function (n_clients, rng) that creates one, got "
            f"{short(task)}"
        )
    given: dict[str, Any] = {"first_seed": first_seed, "learning": task, "cohort_size": cohort_size}
    changes = {key: value for key, value in given.items() if value is not None}
    changes["policies"] = _labelled(policies)
    if isinstance(scenario, str | Path):
        scenario = read_scenario(scenario)
    if isinstance(scenario, Scenario):
        whole = scenario.changed(**scenario.of_length(rounds, time_s), **changes)
    else:
        if not (callable(scenario) or isinstance(scenario, SimulatedClients)):
            raise InvalidInput(
                "scenario must be a name, a file or a Scenario; or SimulatedClients, or a function "
                f"from a seed to them; got {short(scenario)}"
            )
        if cohort_size is None or (rounds is None and time_s is None):
            raise InvalidInput("clients need cohort_size=..., and rounds=... or time_s=...")
        length = {"rounds": rounds, "time_s": time_s}
        changes |= {key: value for key, value in length.items() if value is not None}
        changes.setdefault("first_seed", getattr(scenario, "seed", 0))
        table = {"title": "Simulated clients", "clients": scenario, **changes}
        whole = parse_scenario(table, name="clients", file="clients")
    is_temporary = folder is None
    kept = Path(tempfile.mkdtemp(prefix="bsfl-compare-") if folder is None else folder).expanduser()
    try:
        found = Comparison(run_scenario(whole, kept, seeds=n_seeds, jobs=jobs, progress=progress))
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

    def table(self, metrics: Sequence[str] | None = None) -> Table:
        """Return one row per policy, with means and 95 % intervals over the seeds.

        Bold numbers are significantly the best. `to_latex`, `to_markdown` and `to_frame` of the
        table take the columns to show.

        Args:
            metrics: Names of metrics, the columns; None: those of a report.
        """
        return summary_table(self.summary, "report", metrics=metrics)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per policy and seed, one column per metric."""
        return self.summary.to_frame()

    def headline(self) -> str:
        """Return which policy is first and by how much, in a few sentences."""
        return "\n".join([*headline(self.summary), *self.summary.warnings()])

    def plot(
        self,
        metric: str | None = None,
        *,
        policies: Sequence[str] | None = None,
        order: Sequence[str] | None = None,
        size: tuple[float, float] | None = None,
        ax: Any = None,
    ) -> Any:
        """Return a matplotlib figure. Your own policies are in front, else Pace and BSFL.

        Args:
            metric: "accuracy", "loss", "time", "participation" or "regret", a curve each; or the
                name of a metric, a bar for each policy. None: the model's quality over time or,
                without training, time and participation.
            policies: Labels of the policies to show; None: all.
            order: Labels in the order of the legend; None: as in `policies`.
            size: Width and height in inches.
            ax: Matplotlib axes to draw one metric on; None: a new figure.
        """
        with optional_imports():
            from bsfl.report import figures_matplotlib
            from bsfl.report.scenario import comparison_plot
        if ax is not None and metric is None:
            raise InvalidInput(
                "axes hold one panel: give a metric, such as plot('accuracy', ax=ax)"
            )
        labels = list(self.summary.policies if policies is None else policies)
        first = [label for label in order or () if policies is None or label in labels]
        labels = [*first, *(label for label in labels if label not in first)]
        shown = comparison_plot(self.results, self.summary, metric, labels)
        if ax is None:
            return figures_matplotlib.draw(shown, size=size)
        figures_matplotlib.draw_on(ax, shown)
        return ax.figure

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
        return f"<p>{escape(self.headline())}</p>{self.table()._repr_html_()}"


def _labelled(policies: Any) -> dict[str, Any]:
    """Return the given policies by label; without a dict, their names are the labels."""
    if isinstance(policies, Mapping):
        labelled = dict(policies)
    else:
        is_one = isinstance(policies, str | type) or not isinstance(policies, Iterable)
        labelled = {}
        for policy in [policies] if is_one else policies:
            label = _label(policy)
            if label in labelled:
                raise InvalidInput(
                    f"two policies are called {label!r}; name them with a dict of label: policy"
                )
            labelled[label] = policy
    if not labelled:
        raise InvalidInput("there must be at least one policy")
    return {
        label: absolute_reference(policy, Path.cwd()) if isinstance(policy, str) else policy
        for label, policy in labelled.items()
    }


def _label(policy: Any) -> str:
    if isinstance(policy, str):
        return policy.rpartition(":")[2] if is_reference(policy) else policy
    name = POLICIES.name_of(policy)
    return name or (policy if isinstance(policy, type) else type(policy)).__name__


def _first_and_number(seeds: Any) -> tuple[int | None, int]:
    """Return the first seed, None if it is the scenario's, and the number of seeds."""
    is_several = isinstance(seeds, Sequence) and not isinstance(seeds, str)
    if not is_several:
        return None, validation.natural("seeds", seeds)
    whole = all(isinstance(seed, int) for seed in seeds)
    if not seeds or not whole or list(seeds) != list(range(seeds[0], seeds[0] + len(seeds))):
        raise InvalidInput(
            f"seeds must be a number, or seeds that follow each other as [3, 4], got {seeds!r}"
        )
    return seeds[0], len(seeds)
