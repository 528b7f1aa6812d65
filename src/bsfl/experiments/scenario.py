"""A scenario: simulated clients, what they train, the policies to compare, and for how long.

docs/scenarios.md describes the TOML file with all its tables. Everything is checked when it is
read. Custom files, which may stand in place of any name ("mine.py:Rule"), are executed by a run
alone: what depends on them is checked then, before anything is written.
"""

import copy
import math
import re
import unicodedata
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SkipValidation,
    Tag,
    ValidationInfo,
    model_validator,
)

from bsfl import validation
from bsfl._core.registry import is_reference, settings_of
from bsfl.errors import InvalidInput
from bsfl.experiments.clients_spec import AnyClients, Count, GivenClients
from bsfl.experiments.learning_spec import AnyLearning, GivenTask, Learning, OwnTask
from bsfl.experiments.parts import (
    UNKNOWN,
    Given,
    Named,
    Part,
    at,
    by_key,
    checked,
    is_opened,
    kind_by_default,
    known_keys,
    rule,
)
from bsfl.policies import POLICIES
from bsfl.policy import LOSS, SAMPLES, Policy
from bsfl.rounds import BufferPlan
from bsfl.simulation.clients import SimulatedClients, places
from bsfl.simulation.regret import Objective
from bsfl.simulation.training import Training
from bsfl.types import OverSelection, RoundPlan

MAX_ROUNDS = 1_000_000
"""Rounds of a scenario that is limited by virtual time alone."""
MOST_ROUNDS, MOST_SEEDS = 100_000_000, 100_000
MAX_LABEL = 100
"""Characters of a policy's label, which is the name of a folder, too."""


class SynchronousRounds(Part):
    """A round waits for its target responses, or for its deadline (None: tau_max)."""

    kind: Literal["synchronous"] = "synchronous"
    over_selection: SkipValidation[OverSelection] = 1.0  # RoundPlan checks all of them
    deadline_s: SkipValidation[float] | None = None
    min_responses: SkipValidation[int] = 0
    late: SkipValidation[Literal["drop", "apply"]] = "drop"

    def plan(self, cohort_size: int, tau_max: float) -> RoundPlan:
        deadline_s = tau_max if self.deadline_s is None else self.deadline_s
        return RoundPlan(
            target_responses=cohort_size,
            over_selection=self.over_selection,
            deadline_s=deadline_s,
            min_responses=self.min_responses,
            late=self.late,
            lifetime_s=None if self.min_responses else deadline_s,  # a dropped client is idle
        )


class BufferedRounds(Part):
    """Asynchronous (FedBuff): `concurrency` clients (None: cohort_size) are always in flight."""

    kind: Literal["buffered"]
    concurrency: Count | None = None
    buffer_size: Count = 10
    deadline_s: SkipValidation[float] | None = None

    def plan(self, cohort_size: int, tau_max: float) -> BufferPlan:
        concurrency = self.concurrency or cohort_size
        if self.buffer_size > concurrency:
            raise InvalidInput(
                f"buffer_size must not exceed the concurrency of {concurrency}, "
                f"got {self.buffer_size}"
            )
        return BufferPlan(
            concurrency=concurrency,
            buffer=self.buffer_size,
            deadline_s=tau_max if self.deadline_s is None else self.deadline_s,
        )


class NamedPolicy(Named):
    """A policy by name; further keys are its settings."""

    registry, key = POLICIES, "policy"
    provided = ("tau_max", "rounds", "mean_speed")
    policy: str

    @property
    def is_oracle(self) -> bool:
        """Whether the policy knows the true speeds, as far as can be seen without executing it."""
        is_seen = self.policy in POLICIES and not is_reference(self.policy)
        return is_seen and bool(getattr(POLICIES[self.policy], "is_oracle", False))

    def make(self, provided: Mapping[str, Any]) -> Policy:
        """Return the policy with its settings and those provided that it knows."""
        known = POLICIES.settings(self.policy)
        given = {key: value for key, value in provided.items() if key in known}
        policy: Policy = POLICIES.make(self.policy, **(given | self.settings))
        return policy


class GivenPolicy(Given):
    """A policy given as an object or a class; every run gets one of its own."""

    @property
    def is_oracle(self) -> bool:
        """Whether the policy knows the true speeds."""
        return bool(getattr(self.made, "is_oracle", False))

    def make(self, provided: Mapping[str, Any]) -> Policy:
        """Return a copy of the object, or what the class makes of what is provided and fits."""
        maker = self.get()
        if not isinstance(maker, type):
            return copy.deepcopy(maker)  # type: ignore[no-any-return]
        known = settings_of(maker)
        policy: Policy = maker(**{key: one for key, one in provided.items() if key in known})
        return policy


def as_policy(label: str, policy: Any) -> Any:
    """Return the table of a policy: a table, a name, a class or an object."""
    if isinstance(policy, Named | Given):
        return policy
    if isinstance(policy, Mapping):
        is_complete = "policy" in policy or "object" in policy
        return policy if is_complete else {"policy": label, **policy}
    name = policy if isinstance(policy, str) else POLICIES.name_of(policy)
    if isinstance(policy, str) or (name and isinstance(policy, type)):
        return {"policy": name}
    if not (issubclass(policy, Policy) if isinstance(policy, type) else isinstance(policy, Policy)):
        raise InvalidInput(
            "a policy must be a table, a name, mine.py:Class, a subclass of bsfl.Policy or an "
            f"object of one, got {validation.short(policy)}"
        )
    settings = None if isinstance(policy, type) else POLICIES.plain(policy)
    return GivenPolicy.of(policy) if settings is None else {"policy": name, **settings}


def check_label(label: str) -> None:
    """Check that a label can be the name of a folder and of a column."""
    if not isinstance(label, str):
        raise InvalidInput(f"a policy's label must be a text, got {validation.short(label)}")
    if not re.fullmatch(r"[\w.+-]+", label) or label.startswith("."):
        raise InvalidInput(f"a policy's label may hold letters, digits and . _ + -, got {label!r}")
    if len(label) > MAX_LABEL:
        raise InvalidInput(f"a policy's label may have {MAX_LABEL} characters, got {len(label):,}")


def _one_line(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be a text, got {validation.short(value)}")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise InvalidInput(f"{name} must be one line of text, got {value!r}")


def from_object(kind: type[Given]) -> BeforeValidator:
    """Return a validator that puts an object, or what makes one, into a table of this kind."""

    def wrap(thing: Any) -> Any:
        is_table = thing is None or isinstance(thing, Mapping | Part)
        is_object = isinstance(thing, SimulatedClients) or hasattr(thing, "aggregate")
        return kind.of(thing) if not is_table and (is_object or callable(thing)) else thing

    return BeforeValidator(wrap)


def _as_objective(objective: Any) -> Any:
    if objective is None or isinstance(objective, Objective):
        return objective
    if not isinstance(objective, Mapping):
        raise InvalidInput(f"expected a table, got {validation.short(objective)}")
    known_keys(objective, settings_of(Objective))
    return Objective(**objective)


def _as_policies(policies: Any) -> Any:
    if not isinstance(policies, Mapping):
        raise InvalidInput(f"expected a table, got {validation.short(policies)}")
    tables = {}
    for label, policy in policies.items():
        check_label(label)
        with at(f"[policies.{label}]"):
            tables[label] = as_policy(label, policy)
    return tables


class Scenario(Part):
    """A checked scenario.

    Attributes:
        title: One line for tables and figures.
        rounds: Rounds of a run, at most.
        time_s: Virtual seconds after which no further round of a run starts.
        cohort_size: m.
        seeds: Default number of seeds.
        first_seed: The first seed; the others follow.
        clients: How the clients of a seed are made.
        round: How rounds are closed.
        objective: What regret is measured in; None: no regret.
        learning: What the cohorts train; None: they only take their time.
        policies: The policies by label.
    """

    title: Annotated[str, rule(_one_line)]
    rounds: Annotated[int, rule(validation.natural, 1, MOST_ROUNDS)] = MAX_ROUNDS
    time_s: Annotated[float, rule(validation.positive)] = math.inf
    cohort_size: Count
    seeds: Annotated[int, rule(validation.natural, 1, MOST_SEEDS)] = 5
    first_seed: Annotated[int, rule(validation.natural, 0)] = 0
    clients: Annotated[AnyClients, from_object(GivenClients)]
    round: Annotated[
        Annotated[SynchronousRounds | BufferedRounds, Field(discriminator="kind")],
        kind_by_default("synchronous"),
    ] = SynchronousRounds()
    objective: Annotated[SkipValidation[Objective] | None, BeforeValidator(_as_objective)] = None
    learning: Annotated[AnyLearning | None, from_object(GivenTask)] = None
    policies: Annotated[
        dict[
            str,
            Annotated[
                Annotated[GivenPolicy, Tag("<object>")] | Annotated[NamedPolicy, Tag("<policy>")],
                by_key("policy", "object"),
            ],
        ],
        BeforeValidator(_as_policies),
    ] = Field(default_factory=dict)
    _name: str = PrivateAttr("scenario")

    @property
    def name(self) -> str:
        """File name without its ending."""
        return self._name

    @property
    def plan(self) -> RoundPlan | BufferPlan:
        """How rounds are closed."""
        return self.round.plan(self.cohort_size, self.clients.tau_max)

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        if is_opened(info):
            return self
        if not {"rounds", "time_s"} & self.model_fields_set:
            raise InvalidInput("missing key 'rounds' or 'time_s'")
        self._count_clients()
        validation.cohort_fits(self.cohort_size, self.clients.n_clients)
        with at("[round]"):
            self._check_round()
        if isinstance(self.learning, GivenTask):
            if not self.clients.is_custom:
                self.simulated_clients(0)
        elif self.learning and self.clients.data:
            raise InvalidInput("[clients.data] and [learning] both say how much data there is")
        with at("[clients]"):
            clients = None if self.clients.is_custom else self.clients.build(0)
        for label, table in self.policies.items():
            if clients and not table.is_custom:
                with at(f"[policies.{label}]"):
                    self.check_needs(self.policy(label, clients))
        return self

    def _count_clients(self) -> None:
        """Take the number of clients from the files that say it, where the table does not."""
        if self.clients.n_clients or isinstance(self.clients, GivenClients):
            return
        with at("[clients]"):
            n_clients = self.clients.n_recorded()
            if n_clients is None and isinstance(self.learning, Learning):
                n_clients = self.learning.n_recorded()
            if n_clients is None:
                raise InvalidInput("missing key 'n_clients', and no file names the clients")
            self.__dict__["clients"] = self.clients.changed(n_clients=n_clients)

    def _check_round(self) -> None:
        plan, n_clients = self.plan, self.clients.n_clients
        n_busy = plan.concurrency if isinstance(plan, BufferPlan) else plan.max_invited
        if n_busy > n_clients:
            raise InvalidInput(f"{n_busy} clients in flight are more than the {n_clients} clients")
        if self.objective and "time_s" in self.model_fields_set:
            raise InvalidInput(
                "[objective]: regret is measured over a fixed number of rounds: give rounds and "
                "no time_s, or leave out [objective]"
            )
        if self.objective and (isinstance(plan, BufferPlan) or n_busy > self.cohort_size):
            raise InvalidInput("regret is that of rounds that wait for all invited clients")

    def changed(self, **changes: Any) -> Self:
        """Return this scenario with some keys changed, after checking it; None removes a key.

        >>> from bsfl.experiments import read_scenario
        >>> read_scenario("phones").changed(rounds=10, seeds=2).rounds
        10
        """
        with at(self.name):
            scenario = super().changed(**changes)
        scenario._name = self.name
        return scenario

    def of_length(self, rounds: int | None, time_s: float | None) -> dict[str, Any]:
        """Return the changes that give another length: rounds, virtual seconds, or both.

        Regret is measured over a fixed number of rounds; with another time it is left out.
        """
        if time_s is not None:
            return {"rounds": rounds, "time_s": time_s, "objective": None}
        return {} if rounds is None else {"rounds": rounds, "time_s": None}

    @property
    def is_timed(self) -> bool:
        """Whether all runs take the same time, and not the same rounds."""
        return math.isfinite(self.time_s)

    @property
    def is_custom(self) -> bool:
        """Whether making clients or their task executes files of the user's own."""
        return self.clients.is_custom or bool(self.learning and self.learning.is_custom)

    def simulated_clients(self, index: int) -> SimulatedClients:
        """Return the clients of seed `first_seed + index`, with the sizes of their data."""
        seed = self.first_seed + index
        if not self.learning:
            return self.clients.build(seed)
        with at("[learning]"):
            names = partial(self.clients.names, seed)
            known = self.learning.client_data(self.clients.n_clients, seed, names=names)
            recorded = self.clients.recorded_names()
            if known.ids is not None and recorded and isinstance(self.learning, OwnTask):
                places(known.ids, recorded)
        return self.clients.build(seed, **known._asdict())

    def training(self, index: int, *, workers: int | None = None) -> Training | None:
        """Return what cohorts train with seed `first_seed + index`, the same for every policy."""
        if not self.learning:
            return None
        seed = self.first_seed + index
        task = self.learning.make_task(
            self.clients.n_clients,
            seed,
            workers=workers,
            names=partial(self.clients.names, seed),
        )
        return Training(
            task,
            seed,
            weighting=self.learning.weighting,
            evaluate_every_s=self.learning.evaluate_every_s,
        )

    def policy(self, label: str, clients: SimulatedClients) -> Policy:
        """Return the policy with this label, for one seed.

        A policy with a setting tau_max gets the deadline, which a server knows, and one with a
        setting rounds the number of rounds, where the scenario gives one. Oracles alone get the
        true speeds.
        """
        table = self.policies[label]
        provided: dict[str, Any] = {"tau_max": self.plan.deadline_s}
        if self.rounds < MAX_ROUNDS:
            provided["rounds"] = self.rounds
        is_custom = isinstance(table, NamedPolicy) and is_reference(table.policy)
        maker = POLICIES.find(table.name) if is_custom else table
        if getattr(maker, "is_oracle", False):
            if clients.latency.phase(1) != clients.latency.phase(self.rounds):
                raise InvalidInput(
                    f"{label} knows one speed of each client, so the clients cannot drift"
                )
            provided["mean_speed"] = clients.mean_speed(1)
        return table.make(provided)

    def check_needs(self, policy: Policy) -> None:
        """Check that clients report what a policy needs: losses when they train, sizes likewise."""
        needs = policy.needs
        if needs >= LOSS and not self.learning:
            raise InvalidInput(
                "this policy needs losses, which no client reports without [learning]"
            )
        if needs >= SAMPLES and not (self.learning or self.clients.data):
            raise InvalidInput(
                "this policy needs the clients' samples: add [clients.data] or [learning]"
            )


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return where the plain scenarios of results and of a run differ, or cannot be compared.

    A run may bring further policies, or leave some out.
    """
    pairs = {key: (then.get(key), now.get(key)) for key in {**then, **now} if key != "policies"}
    old, new = then.get("policies", {}), now.get("policies", {})
    pairs |= {f"policies.{label}": (old[label], new[label]) for label in new if label in old}
    found = []
    for key, (before, after) in pairs.items():
        if before != after:
            found.append(key)
        elif isinstance(after, Mapping) and after.get("settings") == UNKNOWN:
            found.append(f"{key}, perhaps: nothing shows whether {after['object']} is the same")
    return found


def parse_scenario(
    content: Mapping[str, Any], *, name: str, file: str, is_opened: bool = False
) -> Scenario:
    """Return a scenario from the content of a TOML file, in which objects may stand for tables.

    Args:
        content: The content.
        name: Name of the scenario.
        file: Name of the file, for messages.
        is_opened: Whether it is that of results, which is taken as it is.
    """
    scenario = checked(Scenario, content, place=file, is_opened=is_opened)
    scenario._name = name
    return scenario
