"""Analysis of results: metrics, intervals over seeds, tables."""

from bsfl.analysis.metrics import METRICS, Metric
from bsfl.analysis.statistics import Interval, interval
from bsfl.analysis.summary import Summary, summarise
from bsfl.analysis.tables import Table, summary_table
from bsfl.analysis.target import Target, find_target

__all__ = [
    "METRICS",
    "Interval",
    "Metric",
    "Summary",
    "Table",
    "Target",
    "find_target",
    "interval",
    "summarise",
    "summary_table",
]
