"""What each policy may be tuned to: its defaults first, then what its class says.

Every policy gets the same number of tries, `bsfl leaderboard --tune N` takes the first N.
"""

from typing import Any

from bsfl.policies import POLICIES

TAIL: dict[str, Any] = {"index": {"kind": "lognormal"}}

CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    name: ({}, *policy.tuning) for name, policy in POLICIES.items() if hasattr(policy, "tuning")
}

MOST_TRIES = max(len(tries) for tries in CANDIDATES.values())

KNOWS_THE_TRUTH = tuple(
    name for name, policy in POLICIES.items() if getattr(policy, "knows_truth", False)
)
"""Policies that are told true speeds; a reference, not competitors."""
