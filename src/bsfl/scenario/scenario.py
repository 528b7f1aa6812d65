"""What a scenario is: a fleet, what it trains, the policies that meet it, and for how long."""

from dataclasses import dataclass, field
from typing import Any

from bsfl.errors import InvalidInput
from bsfl.fleet import Fleet
from bsfl.policies import POLICIES, Policy, make_policy
from bsfl.requirements import LOSS, SAMPLES, needs_of
from bsfl.rounds import BufferPlan, RoundPlan
from bsfl.scenario.fleet_spec import FleetSpec
from bsfl.scenario.given import GivenFleet, GivenTask
from bsfl.scenario.learning_spec import LearningSpec
from bsfl.simulation import Objective, Training

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
        known = self.learning.data(self.fleet.n_clients, seed)
        return self.fleet.build(seed, samples=known.samples, quality=known.quality, ids=known.ids)

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
        provided: dict[str, Any] = {"tau_max": self.plan.deadline_s}
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
