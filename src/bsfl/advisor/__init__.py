"""The advisor: from a log of responses to a comparison of settings, and a recommendation.

reading     a CSV or a journal              settings  policies, invitations and deadlines
log         what was read, and a warm start search    their runs, longer ones for the best
population  clients resampled from a log    advice    what to change, and what each change saves
"""

from bsfl.advisor.advice import Advice, Change, advise
from bsfl.advisor.log import ResponseLog, warm_start
from bsfl.advisor.reading import read_log
from bsfl.simulation.response_log import CsvFormat

__all__ = ["Advice", "Change", "CsvFormat", "ResponseLog", "advise", "read_log", "warm_start"]
