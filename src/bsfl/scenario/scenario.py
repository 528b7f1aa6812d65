"""Scenario files: one TOML describes a fleet, the policies that meet it, and for how long.

    title = "What this shows"
    rounds = 1000
    cohort_size = 25
    seeds = 5                        # how many worlds, unless the command line says otherwise

    [fleet]
    n_clients = 500
    tau_min = 1.0                    # seconds
    tau_max = 120.0

    [fleet.latency]
    population = "phones"            # see bsfl.fleet.populations; further keys are its settings

    [fleet.availability]             # optional: kind = "always" | "phones" | "week" | ...
    [fleet.drift]                    # optional: kind = "swap" | "scale"
    [fleet.failures]                 # optional: probability, of all or of a share
    [fleet.lies]                     # optional: share, time, loss
    [fleet.data]                     # optional: sizes and quality

    [round]                          # optional: kind = "barrier" (invite, deadline_s, quorum, late)
                                     # or "buffered" (concurrency, buffer, deadline_s)
    [learning]                       # optional: what the cohorts train
    [objective]                      # optional: what regret is measured in

    [policies.bsfl]                  # the policy, or a label beside policy = ...
    alpha = 10.0

Everything is checked before anything runs; an unknown key names the nearest known one.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from bsfl import checks
from bsfl.errors import InvalidInput
from bsfl.fleet import POPULATIONS, Fleet
from bsfl.fleet.split import SPLITS
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.registry import REQUIRED, absolute_reference, is_reference, nearest, settings_of
from bsfl.requirements import LOSS, SAMPLES, needs_of
from bsfl.rounds import BufferPlan, RoundPlan
from bsfl.scenario.fleet_spec import (
    AvailabilitySpec,
    DataSpec,
    DriftSpec,
    FailuresSpec,
    FeaturesSpec,
    FleetSpec,
    LiesSpec,
)
from bsfl.scenario.given import OBJECT, GivenFleet, GivenTask
from bsfl.scenario.learning_spec import LearningSpec
from bsfl.scenario.round_spec import ROUNDS
from bsfl.scenario.toml_file import check_values, read_toml
from bsfl.simulation import Objective, Training

Table = dict[str, Any]
OPTIONAL_PARTS = {
    "availability": AvailabilitySpec,
    "drift": DriftSpec,
    "failures": FailuresSpec,
    "lies": LiesSpec,
    "data": DataSpec,
    "features": FeaturesSpec,
}
"""Tables of [fleet] that are records of their own."""
MAX_ROUNDS = 1_000_000
"""Rounds of a scenario that is limited by virtual time alone."""
MOST_ROUNDS = 100_000_000
MOST_SEEDS = 100_000
MAX_LABEL = 100
"""Characters of a policy's label, which is the name of a folder, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A checked scenario.

    Attributes:
        name: File name without its ending.
        title: One line for tables and figures.
        rounds: Rounds of a run, at most.
        time_s: Virtual seconds after which no further round of a run starts.
        cohort_size: m.
        seeds: Default number of worlds.
        first_seed: Seed of the first world; the others follow.
        fleet: How each world is made.
        plan: How its rounds are closed.
        objective: What regret is measured in; None: no regret.
        learning: What the cohorts train; None: they only take their time.
        policies: Registry name, or who makes it, and settings by label.
        source: The file's content, for the manifest.
    """

    name: str
    title: str
    rounds: int
    time_s: float
    cohort_size: int
    seeds: int
    first_seed: int
    fleet: FleetSpec | GivenFleet
    plan: RoundPlan | BufferPlan
    objective: Objective | None
    learning: LearningSpec | GivenTask | None
    policies: dict[str, tuple[Any, dict[str, Any]]]
    source: dict[str, Any] = field(repr=False)

    def world(self, number: int) -> Fleet:
        """Return the fleet of one world; its data sizes are those of the data it trains on."""
        seed = self.first_seed + number
        if not self.learning:
            return self.fleet.build(seed)
        samples, quality = self.learning.data(self.fleet.n_clients, seed)
        return self.fleet.build(seed, samples=samples, quality=quality)

    def training(self, number: int, *, workers: int | None = None) -> Training | None:
        """Return what the cohorts of one world train, the same for every policy."""
        if not self.learning:
            return None
        seed = self.first_seed + number
        task = self.learning.task(self.fleet.n_clients, seed, workers=workers)
        return Training(
            task,
            seed,
            weighting=self.learning.weighting,
            evaluate_every_s=self.learning.evaluate_every_s,
        )

    def policy(self, label: str, fleet: Fleet) -> Policy:
        """Return the policy with this label, for one world.

        The deadline is the server's own and so known to every policy that asks for it, as is the
        number of rounds where the scenario gives one. A policy that knows the truth, and it alone,
        is told the true speeds.
        """
        name, settings = self.policies[label]
        provided: Table = {"tau_max": self.plan.deadline_s}
        if self.rounds < MAX_ROUNDS:
            provided["rounds"] = self.rounds
        if getattr(POLICIES.find(name), "knows_truth", False):
            if fleet.latency.phase(1) != fleet.latency.phase(self.rounds):
                raise InvalidInput(f"{name} knows one truth and cannot meet a fleet with drift")
            provided["mean_speed"] = fleet.mean_speed(1)
        asked = POLICIES.settings(name)
        wanted = {key: value for key, value in provided.items() if key in asked}
        return make_policy(name, **(wanted | settings))

    def check_needs(self, policy: Policy) -> None:
        """Check that clients tell what a policy needs: losses when they train, sizes likewise."""
        needs = needs_of(policy)
        if needs >= LOSS and not self.learning:
            raise InvalidInput("this policy needs losses, which nobody reports without [learning]")
        if needs >= SAMPLES and not (self.learning or self.fleet.data):
            raise InvalidInput(
                "this policy needs the clients' samples: add [fleet.data] or [learning]"
            )


def shipped_scenarios() -> dict[str, Path]:
    """Return the scenario files that come with bsfl, by name."""
    installed = Path(str(resources.files("bsfl"))) / "scenarios"
    source = Path(__file__).parents[3] / "scenarios"
    folder = installed if installed.is_dir() else source
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find_scenario(file_or_name: str) -> Scenario:
    """Return the scenario in a file, or the shipped one of that name."""
    shipped = shipped_scenarios()
    if file_or_name in shipped:
        return read_scenario(shipped[file_or_name])
    path = Path(file_or_name)
    if path.suffix != ".toml" and not path.exists():
        raise InvalidInput(f"unknown scenario {file_or_name!r}{nearest(file_or_name, shipped)}")
    if not path.is_file():
        raise InvalidInput(f"there is no scenario file {file_or_name}")
    return read_scenario(path)


def with_more_policies(scenario: Scenario, policies: Iterable[str]) -> Scenario:
    """Return a scenario in which further policies play, by registry name or file.py:Class."""
    tables = dict(scenario.source["policies"])
    for name in policies:
        label = name.rpartition(":")[2] if is_reference(name) else name
        tables[label] = {"policy": absolute_reference(name, Path.cwd())}
    source = {**scenario.source, "policies": tables}
    return parse_scenario(source, name=scenario.name, file=scenario.name)


def read_scenario(path: Path) -> Scenario:
    """Return the scenario in a TOML file, after checking all of it."""
    with at(path.name):
        content = read_toml(path)
    for table in _tables(content.get("fleet")):
        if isinstance(table.get("path"), str) and table["path"]:  # relative to the file it is in
            table["path"] = str((path.parent / table["path"]).resolve())
    for table in _tables(content.get("policies")):
        if isinstance(table.get("policy"), str):
            table["policy"] = absolute_reference(table["policy"], path.parent)
    return parse_scenario(content, name=path.stem, file=path.name)


def _tables(parent: object) -> list[Table]:
    values = parent.values() if isinstance(parent, dict) else ()
    return [table for table in values if isinstance(table, dict)]


def parse_scenario(content: Table, *, name: str, file: str) -> Scenario:
    """Return a scenario from the content of a TOML file; `file` is for messages."""
    with at(file):
        check_values(content)
        numbers = ("rounds", "time_s", "cohort_size", "seeds", "first_seed")
        parts = ("fleet", "round", "objective", "learning", "policies")
        _known_keys(content, ("title", *numbers, *parts))
        _required(content, ("title", "cohort_size", "fleet", "policies"))
        if "rounds" not in content and "time_s" not in content:
            raise InvalidInput("missing key 'rounds' or 'time_s'")
        if not isinstance(content["title"], str):
            raise InvalidInput(f"title must be a text, got {content['title']!r}")
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in content["title"]):
            raise InvalidInput(f"title must be one line of text, got {content['title']!r}")
        _table(content["policies"])
    fleet = _fleet(content["fleet"], file)
    with at(file):
        cohort_size = checks.natural("cohort_size", content["cohort_size"])
        checks.cohort_fits(cohort_size, fleet.n_clients)
    with at(f"{file} [round]"):
        plan = _plan(content.get("round", {"kind": "barrier"}), cohort_size, fleet)
    with at(f"{file} [objective]"):
        objective = _build(Objective, content["objective"]) if "objective" in content else None
        if objective and "time_s" in content:
            raise InvalidInput("regret needs a fixed number of rounds; leave out time_s")
        if objective and (isinstance(plan, BufferPlan) or plan.most_invited > cohort_size):
            raise InvalidInput("regret is that of rounds that wait for all who are invited")
    with at(f"{file} [learning]"):
        learning = _learning(content["learning"]) if "learning" in content else None
        if learning and fleet.data:
            raise InvalidInput("[fleet.data] and [learning] both say how much data there is")
    policies = {}
    for label, table in content["policies"].items():
        with at(f"{file} [policies]"):
            check_label(label)
        with at(f"{file} [policies.{label}]"):
            policies[label] = _policy(label, table)
    with at(file):
        scenario = Scenario(
            name=name,
            title=content["title"],
            rounds=_at_most("rounds", content.get("rounds", MAX_ROUNDS), MOST_ROUNDS),
            time_s=checks.positive("time_s", content["time_s"])
            if "time_s" in content
            else math.inf,
            cohort_size=cohort_size,
            seeds=_at_most("seeds", content.get("seeds", 5), MOST_SEEDS),
            first_seed=checks.natural("first_seed", content.get("first_seed", 0), low=0),
            fleet=fleet,
            plan=plan,
            objective=objective,
            learning=learning,
            policies=policies,
            source=content,
        )
        if not policies:
            raise InvalidInput("there must be at least one policy")
    world = fleet.build(seed=0)
    for label in policies:
        with at(f"{file} [policies.{label}]"):
            scenario.check_needs(scenario.policy(label, world))
    return scenario


def _at_most(name: str, value: int, most: int) -> int:
    """Return a count that is not beyond all reason."""
    if checks.natural(name, value) > most:
        raise InvalidInput(f"{name} must be at most {most:,}, got {value:,}")
    return value


def _plan(table: Table, cohort_size: int, fleet: FleetSpec) -> RoundPlan | BufferPlan:
    _table(table)
    part = ROUNDS.part({"kind": "barrier", **table})
    plan: RoundPlan | BufferPlan = part.plan(cohort_size, fleet.tau_max)
    n_busy = plan.concurrency if isinstance(plan, BufferPlan) else plan.most_invited
    if n_busy > fleet.n_clients:
        raise InvalidInput(
            f"{n_busy} clients at work are more than the {fleet.n_clients} there are"
        )
    return plan


def _fleet(table: Table, file: str) -> FleetSpec:
    with at(f"{file} [fleet]"):
        required = ("n_clients", "tau_min", "tau_max", "latency")
        _known_keys(table, (*required, *OPTIONAL_PARTS))
        _required(table, required)
    with at(f"{file} [fleet.latency]"):
        _required(table["latency"], ("population",))
        settings = dict(table["latency"])
        population = settings.pop("population")
        _known_keys(settings, ("population", *POPULATIONS.settings(population)))
    built: Table = {}
    for key, spec in OPTIONAL_PARTS.items():
        if key in table:
            with at(f"{file} [fleet.{key}]"):
                built[key] = _build(spec, table[key])
    with at(f"{file} [fleet]"):
        return FleetSpec(
            **{key: table[key] for key in required if key != "latency"},
            population=population,
            population_settings=settings,
            **built,
        )


def _learning(table: Table) -> LearningSpec:
    _known_keys(table, settings_of(LearningSpec))
    split = table.get("split", {"kind": "iid"})
    _required(split, ("kind",))
    own = SPLITS.settings(split["kind"])
    _known_keys(split, ("kind", "label_noise", "quality", *own))
    for key in ("label_noise", "quality"):
        if key in split:
            checks.span(key, split[key])
    _required(split, (name for name, default in own.items() if default is REQUIRED))
    learning: LearningSpec = _build(LearningSpec, {**table, "split": split})
    return learning


def check_label(label: str) -> None:
    """Check that a label can be the name of a folder and of a column."""
    if not re.fullmatch(r"[\w.+-]+", label) or label.startswith("."):
        raise InvalidInput(f"a policy's label may hold letters, digits and . _ + -, got {label!r}")
    if len(label) > MAX_LABEL:
        raise InvalidInput(f"a policy's label may have {MAX_LABEL} characters, got {len(label):,}")


def _policy(label: str, table: Table) -> tuple[str, Table]:
    _table(table)
    if OBJECT in table:
        raise InvalidInput(
            f"{table[OBJECT]} was given to bsfl.compare as an object; call that with this folder"
        )
    settings = dict(table)
    name = settings.pop("policy", label)
    _known_keys(settings, ("policy", *POLICIES.settings(name)))
    return name, settings


def _build(kind: Callable[..., Any], table: Table) -> Any:
    """Return a record made from a table after checking its keys."""
    settings = settings_of(kind)
    _known_keys(table, settings)
    _required(table, (name for name, default in settings.items() if default is REQUIRED))
    return kind(**table)


def _table(table: object) -> None:
    if not isinstance(table, dict):
        raise InvalidInput(f"expected a table, got {table!r}")


def _known_keys(table: Table, known: Iterable[str]) -> None:
    _table(table)
    for key in table:
        if key not in known:
            raise InvalidInput(f"unknown key {key!r}{nearest(key, known)}")


def _required(table: Table, keys: Iterable[str]) -> None:
    _table(table)
    for key in keys:
        if key not in table:
            raise InvalidInput(f"missing key {key!r}")


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put the place in front of every message about bad input."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None
