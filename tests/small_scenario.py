"""A scenario that plays in a moment, shared by the tests."""

import copy
import tomllib

from bsfl.experiments import parse_scenario

SMALL = """
title = "small"
rounds = 30
cohort_size = 3
seeds = 2

[clients]
n_clients = 12
tau_min = 1.0
tau_max = 60.0

[clients.latency]
population = "lognormal"

[objective]
alpha = 2.0

[policies.bsfl]
alpha = 2.0

[policies.plain]
policy = "random"
"""


def parse(**changes):
    content = copy.deepcopy(tomllib.loads(SMALL))
    for path, value in changes.items():
        table, *keys = content, *path.split("__")
        for key in keys[:-1]:
            table = table.setdefault(key, {})
        if value is None:
            del table[keys[-1]]
        else:
            table[keys[-1]] = value
    return parse_scenario(content, name="study", file="study.toml")


def parse_training(**learning):
    """Return a scenario that trains a regression in a moment, for 400 virtual seconds."""
    linear = {"dataset": "linear", "learning_rate": 0.02, "evaluate_every_s": 60.0}
    return parse(
        rounds=None,
        time_s=400.0,
        cohort_size=4,
        clients__n_clients=20,
        clients__tau_max=40.0,
        objective=None,
        learning=linear | learning,
        policies={"bsfl": {"alpha": 2.0}, "random": {}},
    )
