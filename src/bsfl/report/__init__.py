"""Figures, pages and files of finished results."""

from bsfl.report.findings import Findings, Section
from bsfl.report.scenario import scenario_findings

__all__ = ["Findings", "Section", "scenario_findings"]
