"""Run it with: python -m pytest test_my_task.py."""

import numpy as np

from bsfl.testing import check_task
from my_task import MyTask


def test_my_task_keeps_the_contract() -> None:
    check_task(MyTask(12, np.random.default_rng(0)))
