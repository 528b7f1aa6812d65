"""What each policy may be tuned to: a few settings, its defaults first.

Every policy gets the same number of tries, `bsfl leaderboard --tune N` takes the first N. One that
has nothing to tune has no entry.
"""

from typing import Any

TAIL: dict[str, Any] = {"speeds": "lognormal", "quantile": 0.9, "optimism": 0.5}

CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    "bsfl": (
        {},
        {"alpha": 1.0, **TAIL},
        {"alpha": 5.0, **TAIL},
        {"alpha": 20.0, **TAIL},
    ),
    "cs-ucb": ({}, {"exploration": 0.1}, {"exploration": 0.01}, {"exploration": 0.001}),
    "cs-ucb-q": (
        {},
        {"exploration": 0.01},
        {"exploration": 0.01, "beta": 0.2},
        {"exploration": 0.01, "phi": 0.9},
    ),
    "rbcs-f": ({}, {"latency_weight": 5.0}, {"latency_weight": 80.0}, {"latency_weight": 0.5}),
    "ucb-cs": ({}, {"gamma": 0.97}, {"gamma": 0.99}, {"gamma": 0.9}),
    "power-of-choice": ({}, {"candidates": 35}, {"candidates": 100}, {"candidates": 200}),
    "fedcs": ({}, {"candidates": 50}, {"candidates": 100}, {"candidates": 200}),
    "oort": ({}, {"percentile": 10.0}, {"percentile": 60.0}, {"explore": 0.5}),
    "tifl": ({}, {"rounds": 150}, {"tiers": 10}, {"tiers": 3}),
    "afl": ({}, {"temperature": 0.1}, {"temperature": 1.0}, {"drop": 0.5}),
}

MOST_TRIES = max(len(tries) for tries in CANDIDATES.values())

KNOWS_THE_TRUTH = ("genie",)
"""Policies that are told true speeds; a reference, not competitors."""
