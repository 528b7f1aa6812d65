"""What an operator looks at: what a scheduler knows, why it selected, and what happened.

Scheduler.summary, table, explain   table.py, explain.py
Scheduler(journal=...)              journal.py holds the events of stream.py; read with read_journal
Scheduler(on_round=...)             publisher.py; prometheus.py is such a callback
Scheduler.replay                    stream.py
"""

from bsfl.monitoring.explain import Explanation
from bsfl.monitoring.journal import Journal, read_journal
from bsfl.monitoring.table import COLUMNS, ClientRows

__all__ = ["COLUMNS", "ClientRows", "Explanation", "Journal", "read_journal"]
