"""Policies x seeds: run in parallel, resumable, with results on disk."""

from bsfl.runs.progress import watch
from bsfl.runs.results import Results, open_results, read_manifest, took_part
from bsfl.runs.run import run_scenario
from bsfl.runs.run_file import Records

__all__ = [
    "Records",
    "Results",
    "open_results",
    "read_manifest",
    "run_scenario",
    "took_part",
    "watch",
]
