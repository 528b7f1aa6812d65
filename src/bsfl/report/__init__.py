"""Figures, pages and files of finished results."""

from bsfl.report.report import Report
from bsfl.report.scenario import scenario_report

__all__ = ["Report", "scenario_report"]
