"""The cost of malicious clients, by the kind of false report and by policy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsfl.experiments.reading import read_scenario
from bsfl.experiments.scenario import Scenario
from bsfl.experiments.summary import summarise
from bsfl.report import Report
from bsfl.studies.study import ROUNDS, Effort, table_of, with_policies

SCENARIO = "phones-iid"
POLICIES: dict[str, dict[str, Any]] = {
    "pace": {},
    "bsfl": {"alpha": 1.0, "index": {"kind": "lognormal"}},
    "oort": {},
    "random": {},
}
FALSE_REPORTS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "1 %, time and loss": {"share": 0.01, "time": True, "loss": 1000.0},
    "10 %, time": {"share": 0.1, "time": True},
    "10 %, loss": {"share": 0.1, "loss": 1000.0},
    "10 %, time and loss": {"share": 0.1, "time": True, "loss": 1000.0},
    "10 %, loss at its bound": {"share": 0.1, "loss": 1e12},
}
"""Share of malicious clients and what they falsify: the fastest time, a loss 1,000 times larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaliciousReports:
    """How much time do malicious clients cost a server that trusts all reports?

    Attributes:
        scenario: A scenario that trains.
    """

    scenario: str = SCENARIO

    def play(self, folder: Path, effort: Effort) -> Report:
        scenarios = {
            folder / f"false-reports-{i}": with_false_reports(self.scenario, settings)
            for i, settings in enumerate(FALSE_REPORTS.values())
        }
        summaries = map(summarise, effort.run_all(scenarios))
        found = dict(zip(FALSE_REPORTS, summaries, strict=True))
        rows = [
            {
                "false reports": name,
                **{k: summary.interval(k, "time_to_target_s") for k in summary.policies},
                **{
                    f"{k}, final_accuracy": summary.interval(k, "final_accuracy")
                    for k in summary.policies
                },
            }
            for name, summary in found.items()
        ]
        title = "time_to_target_s, and final_accuracy, by kind of false report"
        numbers = {name: summary.as_json() for name, summary in found.items()}
        table = table_of(title, rows, note="–: not every seed reached the target")
        return Report(title=title, numbers=numbers, tables=[table])


def with_false_reports(name: str, settings: dict[str, Any] | None) -> Scenario:
    """Return a scenario with over-selection in which some clients send false reports."""
    honest = read_scenario(name)
    clients = honest.clients.changed(false_reports=settings) if settings else honest.clients
    policies = {policy: (policy, options) for policy, options in POLICIES.items()}
    return with_policies(honest, policies, clients=clients, round=ROUNDS["over-selection"])
