"""Run it with: python -m pytest test_my_scenario.py."""

from pathlib import Path

import bsfl


def test_my_scenario_runs() -> None:
    scenario = Path(__file__).parent / "my_scenario.toml"
    found = bsfl.compare(["pace", "random"], scenario, seeds=1, rounds=3, jobs=1, progress=False)
    assert list(found.summary.policies) == ["pace", "random"]
