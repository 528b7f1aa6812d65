"""Figures and numbers of finished results."""

import json
from pathlib import Path
from typing import Any

from bsfl.analysis.summary import summarise
from bsfl.extras import optional_imports
from bsfl.files import alone_in, replace_file
from bsfl.runs.results import Results

with optional_imports():
    from bsfl.report.data_figure import data_figure
    from bsfl.report.page import write_page
    from bsfl.report.scenario_figures import learning_figure, regret_figure, time_figure
    from bsfl.report.style import save

__all__ = ["write_report", "write_summary"]


def write_report(results: Results) -> dict[str, Any]:
    """Write summary.json, report.html and the figures beside the results; return the summary."""
    summary = summarise(results)
    with alone_in(results.folder):
        write_summary(results.folder, summary)
        save(time_figure(results), results.folder, "time")
        if results.scenario.learning:
            save(learning_figure(results), results.folder, "learning")
            save(data_figure(results), results.folder, "data")
        if results.scenario.objective:
            save(regret_figure(results), results.folder, "regret")
        write_page(results, summary)
    return summary


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Write summary.json into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
