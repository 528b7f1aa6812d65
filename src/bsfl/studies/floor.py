"""No client below 80 % of its share, in every fleet of the arena."""

import numpy as np

from bsfl.analysis.metrics import fair_selections
from bsfl.analysis.statistics import interval
from bsfl.fairness import participation
from bsfl.records import FloatArray
from bsfl.runs import Results
from bsfl.scenario import Scenario
from bsfl.studies.ablations import Ablation, Found, Row, mean_rounds
from bsfl.studies.study import changed

FLOOR, FLOOR_PART, FLOOR_ROUNDS = 0.8, 5, 1000
"""The floor that is asked for; from which part of the run on it must hold; and for how long."""
FLOOR_SEED = 100
"""Seed of the first world: the controller was adjusted on others."""
FLOOR_FLEETS = (
    "phones-iid",
    "phones-quantity",
    "authors-bimodal",
    "authors-three-speeds",
    "drift",
    "flaky",
    "availability-8pct",
)


def least_shares(results: Results, label: str) -> FloatArray:
    """Return the smallest part of its share that a client had at any time, seed by seed."""
    rate = fair_selections(results, label) / results.scenario.rounds
    least = []
    for records, fair in zip(results.records(label), rate, strict=True):
        chosen = [participation(cohort, len(fair)) for cohort in records["cohort"]]
        share = np.cumsum(chosen, axis=0) / np.outer(records["t"], fair)
        least.append(share[len(records) // FLOOR_PART :].min())
    return np.array(least)


class FloorHeld(Ablation):
    """Does every client get 80 % of its share, in every fleet of the arena?"""

    scenarios = FLOOR_FLEETS

    def adapt(self, scenario: Scenario) -> Scenario:
        """Return the fleet of an arena's scenario with policies that are asked for a floor."""
        fleet = dict(scenario.source["fleet"])
        if scenario.learning:  # clients take as long as if they trained
            held = scenario.learning.deal(scenario.fleet.n_clients, seed=FLOOR_SEED).sizes
            spread = float(np.log(held).std()) if held.std() > 1 else 0.0
            fleet["data"] = {"mean_samples": float(held.mean()), "size_sigma": spread}
        if "drift" in fleet:
            fleet["drift"] = {**fleet["drift"], "at": FLOOR_ROUNDS // 2 + 1}
        asked = {"policy": "bsfl", "alpha": {"kind": "floor", "share": FLOOR}}
        policies = {
            "floor-paper": asked,
            "floor-bernstein": {**asked, "index": {"kind": "means", "radius": "bernstein"}},
            "floor-lognormal": {**asked, "index": {"kind": "lognormal"}},
            "random": {},
        }
        length = {"learning": None, "time_s": None, "rounds": FLOOR_ROUNDS}
        return changed(scenario, fleet=fleet, first_seed=FLOOR_SEED, policies=policies, **length)

    def rows(self, found: Found) -> list[Row]:
        """Return the least share that any client ever had after the first part of the run."""
        return [
            {
                "fleet": name,
                "policy": label,
                "least share": interval(least_shares(results, label)),
                "mean round over random": interval(
                    mean_rounds(results, label) / mean_rounds(results, "random")
                ),
            }
            for name, results in found.items()
            for label in results.scenario.policies
        ]
