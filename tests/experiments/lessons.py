"""A scenario that trains a regression in a moment."""

from bsfl.experiments import parse_scenario


def content(**learning):
    return {
        "title": "lessons",
        "time_s": 400.0,
        "cohort_size": 4,
        "seeds": 2,
        "clients": {
            "n_clients": 20,
            "tau_min": 1.0,
            "tau_max": 40.0,
            "latency": {"population": "lognormal"},
        },
        "learning": {
            "dataset": "linear",
            "learning_rate": 0.02,
            "evaluate_every_s": 60.0,
            **learning,
        },
        "policies": {"bsfl": {"alpha": 2.0}, "random": {}},
    }


def scenario(**learning):
    return parse_scenario(content(**learning), name="lessons", file="lessons.toml")
