"""Questions asked of the simulator. Every study has one shape: play(folder, effort) -> Findings."""

from bsfl.registry import Registry

STUDIES: Registry[type] = Registry(
    "study",
    {
        "leaderboard": "bsfl.studies.leaderboard:Leaderboard",
        "advise": "bsfl.studies.advice:Advice",
        "scenario": "bsfl.studies.paper:ScenarioStudy",
        "generalization": "bsfl.studies.paper:Generalization",
        "annealing": "bsfl.studies.annealing:Annealing",
        "annealing-graph": "bsfl.studies.annealing:AnnealingGraph",
        "radius": "bsfl.studies.radius:Radius",
        "rounds": "bsfl.studies.rounds:RoundKinds",
        "liars": "bsfl.studies.liars:Liars",
        "drift": "bsfl.studies.ablations:Drift",
        "cold-start": "bsfl.studies.ablations:ColdStart",
        "jitter": "bsfl.studies.ablations:Jitter",
        "floor": "bsfl.studies.ablations:FloorHeld",
    },
    group="bsfl.studies",
)
"""Every study; its code is imported when it is asked for, as it needs extras."""

ABLATIONS = ("rounds", "liars", "radius", "drift", "cold-start", "jitter", "floor")
"""Studies of one choice, for `bsfl ablation`: how rounds close, who lies, options of BSFL."""
FIGURES = ("annealing", "annealing-graph", "generalization")
"""Studies that make a figure of the paper, for `bsfl reproduce`."""
PAPER_SCENARIOS = (
    *("regret-iid", "regret-noniid", "regret-iid-500", "regret-noniid-500"),
    *("linear-iid", "linear-noniid", "fmnist-iid", "fmnist-iid-paper", "fmnist-noniid"),
    *("cifar10-iid", "cifar10-noniid"),
)
"""Scenarios behind its other figures; the paper could not compute the regret of 500 clients."""
