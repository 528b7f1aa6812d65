"""`bsfl scenarios`: listed, shown and copied."""

import re

from bsfl.experiments import shipped_scenarios
from bsfl.studies import FIGURES, PAPER_SCENARIOS


def test_scenarios_are_listed(bsfl):
    listed = bsfl("scenarios").output
    assert bsfl("scenarios", "list").output == listed
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in PAPER_SCENARIOS)
    assert f"bsfl reproduce: {', '.join((*PAPER_SCENARIOS, *FIGURES))}" in listed


def test_scenarios_are_shown_and_copied(bsfl, study):
    shown = bsfl("scenarios", "show", "demo")
    assert shown.output == shipped_scenarios()["demo"].read_text()
    assert "bsfl run demo.toml" in bsfl("scenarios", "copy", "demo").output
    assert (study / "demo.toml").read_text() == shown.output
    again = bsfl("scenarios", "copy", "demo")
    assert again.exit_code == 2
    assert "demo.toml is there already; nothing was written" in again.output
    unnamed = bsfl("scenarios", "copy", "demo", "demo")
    assert "a scenario file must end in .toml, got demo" in unnamed.output
    assert not (study / "demo").exists()
