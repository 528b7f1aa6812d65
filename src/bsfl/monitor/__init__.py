"""What an operator looks at: what a scheduler knows, why it chose, and what happened.

Scheduler.summary, table, explain   inspect.py, explain.py
Scheduler(journal=...)              journal.py, read with read_journal
Scheduler(on_round=...)             events.py; prometheus.py is such a callback
"""

from bsfl.monitor.explain import Explanation
from bsfl.monitor.inspect import COLUMNS, ClientRows
from bsfl.monitor.journal import Journal, read_journal

__all__ = ["COLUMNS", "ClientRows", "Explanation", "Journal", "read_journal"]
