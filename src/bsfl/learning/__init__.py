"""Federated training: what a task is, and tasks in JAX.

`Task` and its records need numpy alone, so any framework can implement them. The tasks that come
with bsfl are in `bsfl.learning.tasks` and need the extra `sim`.
"""

from bsfl.learning.task import (
    WEIGHTINGS,
    CohortResult,
    Evaluation,
    Params,
    Task,
    Weighting,
    shares,
)

__all__ = ["WEIGHTINGS", "CohortResult", "Evaluation", "Params", "Task", "Weighting", "shares"]
