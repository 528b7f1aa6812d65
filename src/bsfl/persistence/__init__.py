"""Files that survive a crash: one scheduler in one file, replaced in one step, checked when read.

atomic     replaces a file in one step
statefile  named arrays and a JSON header with a checksum
snapshot   what a state file holds of a scheduler
writer     writes a snapshot, at once or while the rounds go on, unless it is another writer's
"""

from bsfl.persistence.atomic import lock, replace_file

__all__ = ["lock", "replace_file"]
