"""What each policy may be tuned to: a few settings, its defaults first.

Every policy gets the same number of tries, `bsfl leaderboard --tune N` takes the first N. One that
has nothing to tune has no entry.
"""

from typing import Any

CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    "bsfl": ({}, {"alpha": 5.0}, {"alpha": 20.0}, {"alpha": 0.2}),
}

KNOWS_THE_TRUTH = ("genie",)
"""Policies that are told true speeds; a reference, not competitors."""
