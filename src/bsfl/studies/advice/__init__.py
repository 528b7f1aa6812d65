"""From a log of clients' answers to a setting: read, resample, search, recommend, start warm."""

from bsfl.fleet.answer_log import Columns
from bsfl.studies.advice.advice import Advice
from bsfl.studies.advice.log import AnswerLog, read_log

__all__ = ["Advice", "AnswerLog", "Columns", "read_log"]
