"""Experiments: scenarios from TOML files, runs of policies with the same seeds, and their results.

scenario   what is simulated, trained and compared     metrics     every number of a run
runner     policies x seeds, in parallel               summary     metrics with intervals over seeds
results    what is on disk                             compare     all of it in one call
"""

from bsfl.experiments.comparison import Comparison, compare
from bsfl.experiments.metrics import METRICS, Metric
from bsfl.experiments.reading import read_scenario, scenario_path, shipped_scenarios
from bsfl.experiments.results import Results, open_results, read_manifest
from bsfl.experiments.runner import run_scenario
from bsfl.experiments.scenario import Scenario, parse_scenario
from bsfl.experiments.statistics import Interval, interval
from bsfl.experiments.summary import Summary, summarise
from bsfl.experiments.tables import Column, Table, summary_table

__all__ = [
    "METRICS",
    "Column",
    "Comparison",
    "Interval",
    "Metric",
    "Results",
    "Scenario",
    "Summary",
    "Table",
    "compare",
    "interval",
    "open_results",
    "parse_scenario",
    "read_manifest",
    "read_scenario",
    "run_scenario",
    "scenario_path",
    "shipped_scenarios",
    "summarise",
    "summary_table",
]
