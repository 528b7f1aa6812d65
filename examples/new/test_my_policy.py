"""Run it with: python -m pytest test_my_policy.py."""

from bsfl.testing import check_policy
from my_policy import MyPolicy


def test_my_policy_keeps_the_contract() -> None:
    check_policy(MyPolicy())
    check_policy(MyPolicy(patience=3))
