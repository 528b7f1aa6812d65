"""A scenario: simulated clients, what they train, the policies to compare, and for how long."""

from dataclasses import dataclass, field
from typing import Any

from bsfl.errors import InvalidInput
from bsfl.experiments.clients_spec import ClientsSpec
from bsfl.experiments.given import GivenClients, GivenTask
from bsfl.experiments.learning_spec import LearningSpec
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.policy import LOSS, SAMPLES
from bsfl.rounds import BufferPlan
from bsfl.simulation.clients import SimulatedClients
from bsfl.simulation.regret import Objective
from bsfl.simulation.training import Training
from bsfl.types import RoundPlan

MAX_ROUNDS = 1_000_000
"""Rounds of a scenario that is limited by virtual time alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A checked scenario.

    Attributes:
        name: File name without its ending.
        title: One line for tables and figures.
        rounds: Rounds of a run, at most.
        time_s: Virtual seconds after which no further round of a run starts.
        cohort_size: m.
        seeds: Default number of seeds.
        first_seed: The first seed; the others follow.
        fleet: How the clients of a seed are made.
        plan: How rounds are closed.
        objective: What regret is measured in; None: no regret.
        learning: What the cohorts train; None: they only take their time.
        policies: Registry name, or function that makes the policy, and settings by label.
        source: The file's content, for the manifest.
    """

    name: str
    title: str
    rounds: int
    time_s: float
    cohort_size: int
    seeds: int
    first_seed: int
    fleet: ClientsSpec | GivenClients
    plan: RoundPlan | BufferPlan
    objective: Objective | None
    learning: LearningSpec | GivenTask | None
    policies: dict[str, tuple[Any, dict[str, Any]]]
    source: dict[str, Any] = field(repr=False)

    def build_fleet(self, index: int) -> SimulatedClients:
        """Return the clients of seed `first_seed + index`, with the sizes of their data."""
        seed = self.first_seed + index
        if not self.learning:
            return self.fleet.build(seed)
        known = self.learning.data(self.fleet.n_clients, seed)
        return self.fleet.build(seed, samples=known.samples, quality=known.quality, ids=known.ids)

    def training(self, index: int, *, workers: int | None = None) -> Training | None:
        """Return what cohorts train with seed `first_seed + index`, the same for every policy."""
        if not self.learning:
            return None
        seed = self.first_seed + index
        task = self.learning.task(self.fleet.n_clients, seed, workers=workers)
        return Training(
            task,
            seed,
            weighting=self.learning.weighting,
            evaluate_every_s=self.learning.evaluate_every_s,
        )

    def policy(self, label: str, fleet: SimulatedClients) -> Policy:
        """Return the policy with this label, for one seed.

        A policy with a setting tau_max gets the deadline, which a server knows, and one with a
        setting rounds the number of rounds, where the scenario gives one. Oracles alone get the
        true speeds.
        """
        name, settings = self.policies[label]
        provided: dict[str, Any] = {"tau_max": self.plan.deadline_s}
        if self.rounds < MAX_ROUNDS:
            provided["rounds"] = self.rounds
        if getattr(POLICIES.find(name), "is_oracle", False):
            if fleet.latency.phase(1) != fleet.latency.phase(self.rounds):
                raise InvalidInput(
                    f"{name} knows one speed of each client, so the fleet cannot drift"
                )
            provided["mean_speed"] = fleet.mean_speed(1)
        known = POLICIES.settings(name)
        given = {key: value for key, value in provided.items() if key in known}
        return make_policy(name, **(given | settings))

    def check_needs(self, policy: Policy) -> None:
        """Check that clients report what a policy needs: losses when they train, sizes likewise."""
        needs = policy.needs
        if needs >= LOSS and not self.learning:
            raise InvalidInput(
                "this policy needs losses, which no client reports without [learning]"
            )
        if needs >= SAMPLES and not (self.learning or self.fleet.data):
            raise InvalidInput(
                "this policy needs the clients' samples: add [fleet.data] or [learning]"
            )
