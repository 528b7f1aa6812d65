"""Write the state files of a release, one per policy and part: python tests/saving/write_state_files.py.

Once for each version, on the day of its release. Files that are there are never written again: they
are what that version wrote, and every later one must read them.
"""

import json
from pathlib import Path

from test_old_state_files import answer

import bsfl
from bsfl import BSFL, Discounted, Floor, Lognormal, MaxGini, Means, Pace, Scheduler, Windowed
from bsfl.policies import POLICIES, make_policy

FOLDER = Path(__file__).parent / "state_files" / bsfl.__version__
CLIENTS = [f"phone-{k}" for k in range(12)]
PARTS = {
    "bsfl-alpha": BSFL(alpha=7.0),
    "bsfl-weighted": BSFL(generalization="weighted"),
    "bsfl-loss": BSFL(generalization="loss"),
    "bsfl-opportunity": BSFL(generalization="opportunity"),
    "bsfl-cucb": BSFL(index=Means(radius="cucb")),
    "bsfl-bernstein": BSFL(index=Means(radius="bernstein")),
    "bsfl-none": BSFL(index=Means(radius="none")),
    "bsfl-anneal": BSFL(solver="annealing-swap"),
    "bsfl-discount": BSFL(index=Means(radius="none"), memory=Discounted(0.9)),
    "bsfl-window": BSFL(index=Means(radius="none"), memory=Windowed(10)),
    "bsfl-lognormal": BSFL(index=Lognormal()),
    "bsfl-lognormal-tail": BSFL(index=Lognormal(quantile=0.9), tau_max=15.0),
    "bsfl-lognormal-discount": BSFL(index=Lognormal(), memory=Discounted(0.9)),
    "bsfl-lognormal-window": BSFL(index=Lognormal(), memory=Windowed(10)),
    "bsfl-floor": BSFL(alpha=Floor(0.8)),
    "bsfl-floor-lognormal": BSFL(alpha=Floor(0.8), index=Lognormal()),
    "bsfl-max-gini": BSFL(alpha=MaxGini(0.1)),
    "pace-evenness": Pace(evenness=2.0),
    "pace-least-share": Pace(least_share=0.8, tau_max=15.0),
}
"""What a policy may be made of, beside its example."""

SETTINGS = {
    "pace-features": {},
    "pace-forget": {"forget_after": 30},
    "pace-invite": {"invite": "auto"},
}
"""What a scheduler may be told, beside its policy; the first has clients with features."""


def schedulers():
    """Return a scheduler for every policy, part and setting, by the name of its file."""
    examples = {
        name: make_policy(name, **getattr(policy, "example", {}))
        for name, policy in POLICIES.items()
    }
    made = {
        name: Scheduler(policy, cohort_size=3, seed=5)
        for name, policy in {**examples, **PARTS}.items()
    }
    return made | {
        name: Scheduler(cohort_size=3, seed=5, **settings) for name, settings in SETTINGS.items()
    }


def play(scheduler, path):
    """Save in the middle of round 19 with one answer in; return who owes one, and what follows."""
    for k, client in enumerate(CLIENTS):
        features = (k / 12.0,) if path.stem.endswith("features") else None
        scheduler.register(client, samples=5 + k, features=features)
    for _ in range(18):
        cohort = scheduler.select()
        scheduler.observe({client: answer(client, scheduler.t) for client in cohort})
    first, *due = scheduler.select()
    scheduler.observe({first: answer(first, 19)})
    scheduler.save(path)
    scheduler.observe({client: answer(client, 19) for client in due})
    following = []
    for _ in range(8):
        following.append(scheduler.select())
        scheduler.observe({client: answer(client, scheduler.t) for client in following[-1]})
    return {"answers_due": due, "next_cohorts": following}


if __name__ == "__main__":
    FOLDER.mkdir()  # refuses to write again
    expected = {name: play(made, FOLDER / f"{name}.bsfl") for name, made in schedulers().items()}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(f"{len(expected)} files in {FOLDER}")
