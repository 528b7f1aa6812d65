"""Scenario files: one TOML file describes a fleet, the policies to compare, and for how long.

    title = "What this shows"
    rounds = 1000
    cohort_size = 25
    seeds = 5                        # number of seeds; the command line may override it

    [fleet]
    n_clients = 500
    tau_min = 1.0                    # seconds
    tau_max = 120.0

    [fleet.latency]
    population = "phones"            # see simulation/populations.py; others are its settings

    [fleet.availability]             # optional: kind = "always" | "phones" | "week" | ...
    [fleet.drift]                    # optional: kind = "swap" | "scale"
    [fleet.failures]                 # optional: probability, of all or of a share
    [fleet.false_reports]            # optional: share, time, loss
    [fleet.data]                     # optional: sizes and quality

    [round]                          # optional: kind = "synchronous" (over_selection, deadline_s,
                                     # min_responses, late) or "buffered" (concurrency, buffer,
                                     # deadline_s)
    [learning]                       # optional: what the cohorts train
    [objective]                      # optional: what regret is measured in

    [policies.bsfl]                  # the policy, or a label beside policy = ...
    alpha = 10.0

Everything is checked before anything runs; an unknown key names the nearest known one. In place of
a name (of a policy, population, kind of availability, split, data set or task) a custom one may be
given: "mine.py:Rule", or the name of an entry point.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from bsfl import validation
from bsfl._core.registry import REQUIRED, Registry, settings_of
from bsfl.errors import InvalidInput
from bsfl.experiments.clients_spec import (
    ClientsSpec,
    DataSpec,
    DriftSpec,
    FailuresSpec,
    FalseReportsSpec,
    FeaturesSpec,
)
from bsfl.experiments.given import OBJECT, TASKS, GivenTask
from bsfl.experiments.learning_spec import LearningSpec
from bsfl.experiments.round_spec import ROUNDS
from bsfl.experiments.scenario import MAX_ROUNDS, Scenario
from bsfl.experiments.toml_file import check_values
from bsfl.experiments.toml_tables import Table, at, build, check_table, known_keys, required
from bsfl.learning.partition import PARTITIONS
from bsfl.policies import POLICIES
from bsfl.rounds import BufferPlan
from bsfl.simulation.availability import AVAILABILITIES
from bsfl.simulation.populations import POPULATIONS
from bsfl.simulation.regret import Objective
from bsfl.simulation.training import WEIGHTINGS
from bsfl.types import RoundPlan

FLEET = ("n_clients", "tau_min", "tau_max")
OPTIONAL_PARTS = {
    "drift": DriftSpec,
    "failures": FailuresSpec,
    "false_reports": FalseReportsSpec,
    "data": DataSpec,
    "features": FeaturesSpec,
}
"""Tables of [fleet] that are records of their own."""
MOST_ROUNDS = 100_000_000
MOST_SEEDS = 100_000
MAX_LABEL = 100
"""Characters of a policy's label, which is the name of a folder, too."""


def parse_scenario(content: Table, *, name: str, file: str) -> Scenario:
    """Return a scenario from the content of a TOML file; `file` is for messages."""
    with at(file):
        check_values(content)
        numbers = ("rounds", "time_s", "cohort_size", "seeds", "first_seed")
        parts = ("fleet", "round", "objective", "learning", "policies")
        known_keys(content, ("title", *numbers, *parts))
        required(content, ("title", "cohort_size", "fleet", "policies"))
        if "rounds" not in content and "time_s" not in content:
            raise InvalidInput("missing key 'rounds' or 'time_s'")
        if not isinstance(content["title"], str):
            raise InvalidInput(f"title must be a text, got {content['title']!r}")
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in content["title"]):
            raise InvalidInput(f"title must be one line of text, got {content['title']!r}")
        check_table(content["policies"])
    with at(f"{file} [fleet]"):
        check_table(content["fleet"])
        check_object(content["fleet"])
    fleet = _fleet(content["fleet"], file)
    with at(file):
        cohort_size = validation.natural("cohort_size", content["cohort_size"])
        validation.cohort_fits(cohort_size, fleet.n_clients)
    with at(f"{file} [round]"):
        plan = _plan(content.get("round", {"kind": "synchronous"}), cohort_size, fleet)
    with at(f"{file} [objective]"):
        objective = build(Objective, content["objective"]) if "objective" in content else None
        if objective and "time_s" in content:
            raise InvalidInput(
                "regret is measured over a fixed number of rounds: give rounds and no time_s, or "
                "leave out [objective]"
            )
        if objective and (isinstance(plan, BufferPlan) or plan.max_invited > cohort_size):
            raise InvalidInput("regret is that of rounds that wait for all invited clients")
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
            time_s=validation.positive("time_s", content["time_s"])
            if "time_s" in content
            else math.inf,
            cohort_size=cohort_size,
            seeds=_at_most("seeds", content.get("seeds", 5), MOST_SEEDS),
            first_seed=validation.natural("first_seed", content.get("first_seed", 0), low=0),
            fleet=fleet,
            plan=plan,
            objective=objective,
            learning=learning,
            policies=policies,
            source=content,
        )
        if not policies:
            raise InvalidInput("there must be at least one policy")
    clients = fleet.build(seed=0)
    for label in policies:
        with at(f"{file} [policies.{label}]"):
            scenario.check_needs(scenario.policy(label, clients))
    return scenario


def _at_most(name: str, value: int, most: int) -> int:
    """Return a count after checking that it is not unreasonably large."""
    if validation.natural(name, value) > most:
        raise InvalidInput(f"{name} must be at most {most:,}, got {value:,}")
    return value


def _plan(table: Table, cohort_size: int, fleet: ClientsSpec) -> RoundPlan | BufferPlan:
    check_table(table)
    part = ROUNDS.part({"kind": "synchronous", **table})
    plan: RoundPlan | BufferPlan = part.plan(cohort_size, fleet.tau_max)
    n_busy = plan.concurrency if isinstance(plan, BufferPlan) else plan.max_invited
    if n_busy > fleet.n_clients:
        raise InvalidInput(
            f"{n_busy} clients in flight are more than the {fleet.n_clients} clients of the fleet"
        )
    return plan


def _fleet(table: Table, file: str) -> ClientsSpec:
    with at(f"{file} [fleet]"):
        known_keys(table, (*FLEET, "latency", "availability", *OPTIONAL_PARTS))
        required(table, (*FLEET, "latency"))
    with at(f"{file} [fleet.latency]"):
        required(table["latency"], ("population",))
        population, of_population = named(POPULATIONS, table["latency"], "population")
    with at(f"{file} [fleet.availability]"):
        settings = table.get("availability", {})
        check_table(settings)
        availability, of_availability = named(AVAILABILITIES, {"kind": "always", **settings})
    built: Table = {}
    for key, spec in OPTIONAL_PARTS.items():
        if key in table:
            with at(f"{file} [fleet.{key}]"):
                built[key] = build(spec, table[key])
    with at(f"{file} [fleet]"):
        return ClientsSpec(
            **{key: table[key] for key in FLEET},
            population=population,
            population_settings=of_population,
            availability=availability,
            availability_settings=of_availability,
            **built,
        )


def _learning(table: Table) -> LearningSpec | GivenTask:
    check_table(table)
    if "task" in table:
        return _task(table)
    known_keys(table, settings_of(LearningSpec))
    split = table.get("split", {})
    check_table(split)
    if "kind" in split:
        named(PARTITIONS, split, others=("label_noise", "quality"))
    for key in ("label_noise", "quality"):
        if key in split:
            validation.span(key, split[key])
    learning: LearningSpec = build(LearningSpec, table)
    known_keys(split, ("kind", "label_noise", "quality", *PARTITIONS.settings(learning.kind)))
    return learning


def _task(table: Table) -> GivenTask:
    """Return a custom task; its settings stand beside those that every task has."""
    check_object(table)
    common = ("weighting", "evaluate_every_s", "target_accuracy")
    task, settings = named(TASKS, table, "task", others=common)
    own = {key: settings.pop(key) for key in common if key in settings}
    validation.one_of("weighting", own.get("weighting", "samples"), WEIGHTINGS)
    validation.at_least("evaluate_every_s", own.get("evaluate_every_s", 0.0), 0.0)
    if "target_accuracy" in own:
        validation.between("target_accuracy", own["target_accuracy"], 0.0, 1.0)
    return GivenTask(given=task, settings=settings, **own)


def check_label(label: str) -> None:
    """Check that a label can be the name of a folder and of a column."""
    if not re.fullmatch(r"[\w.+-]+", label) or label.startswith("."):
        raise InvalidInput(f"a policy's label may hold letters, digits and . _ + -, got {label!r}")
    if len(label) > MAX_LABEL:
        raise InvalidInput(f"a policy's label may have {MAX_LABEL} characters, got {len(label):,}")


def _policy(label: str, table: Table) -> tuple[str, Table]:
    check_table(table)
    check_object(table)
    settings = dict(table)
    name = settings.pop("policy", label)
    known_keys(settings, ("policy", *POLICIES.settings(name)))
    return name, settings


def named(
    known: Registry[Any], table: Table, key: str = "kind", *, others: Sequence[str] = ()
) -> tuple[str, Table]:
    """Return the name in a table and the other keys, which are its settings, after checking both.

    Args:
        known: The registry of names.
        table: The table.
        key: The key of the name.
        others: Keys that may be there and are no settings.
    """
    settings = {k: value for k, value in table.items() if k != key}
    wanted = known.settings(table[key])
    known_keys(settings, (key, *others, *wanted))
    required(settings, (name for name, default in wanted.items() if default is REQUIRED))
    return table[key], settings


def check_object(table: Table) -> None:
    """Check that a table describes something that can be made again."""
    if OBJECT in table:
        raise InvalidInput(
            f"{table[OBJECT]} was given to bsfl.compare as an object; call compare with this folder"
        )
