"""From a log of responses to a setting: read, resample, search, recommend, warm start."""

from bsfl.simulation.response_log import Columns
from bsfl.studies.advice.advice import Advice
from bsfl.studies.advice.log import ResponseLog, read_log

__all__ = ["Advice", "Columns", "ResponseLog", "read_log"]
