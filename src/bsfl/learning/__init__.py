"""Federated training: what a task is, and tasks in JAX.

`Task` and its records need numpy alone, so any framework can implement them. The tasks that come
with bsfl are in `bsfl.learning.tasks` and need the extra `sim`.
"""

from bsfl.learning.task import WEIGHTINGS, Evaluation, Params, Task, Update, Weighting, shares

__all__ = ["WEIGHTINGS", "Evaluation", "Params", "Task", "Update", "Weighting", "shares"]
