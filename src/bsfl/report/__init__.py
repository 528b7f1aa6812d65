"""Figures, pages and files of finished results."""

from bsfl.report.report import Report, Section
from bsfl.report.scenario import scenario_report

__all__ = ["Report", "Section", "scenario_report"]
