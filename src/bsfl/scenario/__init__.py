"""From one TOML file to a checked scenario: worlds, what they train, and who plays in them."""

from bsfl.scenario.scenario import (
    Scenario,
    find_scenario,
    parse_scenario,
    read_scenario,
    shipped_scenarios,
    with_more_policies,
)

__all__ = [
    "Scenario",
    "find_scenario",
    "parse_scenario",
    "read_scenario",
    "shipped_scenarios",
    "with_more_policies",
]
