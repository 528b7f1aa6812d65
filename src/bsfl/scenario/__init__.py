"""Scenarios from TOML files: simulated clients, what they train, and the policies to compare."""

from bsfl.scenario.files import (
    find_scenario,
    read_scenario,
    scenario_path,
    shipped_scenarios,
    with_more_policies,
)
from bsfl.scenario.parse import parse_scenario
from bsfl.scenario.scenario import Scenario

__all__ = [
    "Scenario",
    "find_scenario",
    "parse_scenario",
    "read_scenario",
    "scenario_path",
    "shipped_scenarios",
    "with_more_policies",
]
