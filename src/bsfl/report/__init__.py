"""Figures, pages and files of finished results."""

from bsfl.report.findings import Findings
from bsfl.report.scenario import scenario_findings

__all__ = ["Findings", "scenario_findings"]
