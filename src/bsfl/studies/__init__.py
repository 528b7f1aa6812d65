"""Experiments on the simulator. Every study implements play(folder, effort) -> Report."""

from bsfl._core.registry import Registry

STUDIES: Registry[type] = Registry(
    "study",
    {
        "leaderboard": "bsfl.studies.leaderboard:Leaderboard",
        "scenario": "bsfl.studies.paper:ScenarioStudy",
        "generalization": "bsfl.studies.paper:Generalization",
        "annealing": "bsfl.studies.annealing:Annealing",
        "annealing-graph": "bsfl.studies.annealing:AnnealingGraph",
        "confidence-width": "bsfl.studies.radius:ConfidenceWidth",
        "rounds": "bsfl.studies.rounds:RoundKinds",
        "malicious-clients": "bsfl.studies.malicious:MaliciousReports",
        "drift": "bsfl.studies.ablations:Drift",
        "cold-start": "bsfl.studies.ablations:ColdStart",
        "jitter": "bsfl.studies.ablations:Jitter",
        "min-participation": "bsfl.studies.ablations:FloorHeld",
    },
    group="bsfl.studies",
)
"""Every study, imported on first use because it needs extras."""

ABLATIONS = (
    *("rounds", "malicious-clients", "confidence-width"),
    *("drift", "cold-start", "jitter", "min-participation"),
)
"""Studies of one design choice, for `bsfl ablation`: rounds, false reports, options of BSFL."""
FIGURES = ("annealing", "annealing-graph", "generalization")
"""Studies that reproduce a figure of the paper, for `bsfl reproduce`."""
PAPER_SCENARIOS = (
    *("regret-iid", "regret-noniid", "regret-iid-500", "regret-noniid-500"),
    *("linear-iid", "linear-noniid", "fmnist-iid", "fmnist-iid-paper", "fmnist-noniid"),
    *("cifar10-iid", "cifar10-noniid"),
)
"""Scenarios of its other figures; the paper could not compute the regret for 500 clients."""
