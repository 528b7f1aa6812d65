"""The contracts that policies and tasks keep; run them on your own.

    from bsfl.testing import check_policy, check_task

    def test_my_policy():
        check_policy(LeastServed())

`CHECKS` holds the checks of a policy by name, for a test of its own each. A check raises
AssertionError. A policy that is given numbers by client must have them for 40.
"""

from bsfl.testing.policy import CHECKS, answer, answers, check_policy, contents, context, play
from bsfl.testing.task import check_task

__all__ = [
    "CHECKS",
    "answer",
    "answers",
    "check_policy",
    "check_task",
    "contents",
    "context",
    "play",
]
