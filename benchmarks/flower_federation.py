"""Rounds of a real federation: a SuperLink and six SuperNodes on this machine.

    python benchmarks/flower_federation.py FOLDER [--rounds N] [--scale X] [--arms A ...] [--report]

Clients sleep 0.8, 1.6, 3.2, 6, 10 and 16 seconds (times X), two train in a round. Four arms take
turns in one run: random selection, Pace, Pace with over_selection="auto", and Buffered with Pace,
which makes two versions of one response each where the others play a round of two. Random and Pace
take turns round by round; the other two play ten rounds at a time, and wait for stragglers
afterwards.

FOLDER keeps the rounds of every arm, its scheduler and all logs. Started again with the same
folder, each arm resumes where it was; --report only prints what is there. Needs `bsfl[flower]`.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "federation"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integrations" / "flower"))
from deployment import Deployment
from federation.server import ARMS, COHORT, played

APP = Path(__file__).parent / "federation"
DELAYS_S = (0.8, 1.6, 3.2, 6.0, 10.0, 16.0)
ROUNDS = 30
PATIENCE_S = 6 * 3600.0


def run_all(folder, rounds, scale, arms):
    """Start the federation and wait until these arms have played."""
    logs = folder / time.strftime("logs-%H%M%S")
    logs.mkdir()
    app = shutil.copytree(APP, logs / "app", ignore=shutil.ignore_patterns("__pycache__"))
    with Deployment(logs) as deployment:
        deployment.start_superlink()
        for k, delay_s in enumerate(DELAYS_S):
            deployment.start_node(k, len(DELAYS_S), **{"delay-s": scale * delay_s})
        config = f'folder="{folder}" rounds={rounds} arms="{" ".join(arms)}"'
        run = deployment.run(app, "-c", config)
        deployment.wait(lambda: run.poll() is not None, "the end", PATIENCE_S)


def interval(ours, theirs, n_draws=20_000):
    """Return the ratio of two means with its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    means = [
        rng.choice(values, (n_draws, len(values))).mean(axis=1)
        for values in (np.asarray(ours), np.asarray(theirs))
    ]
    low, high = np.quantile(means[0] / means[1], [0.025, 0.975])
    return np.mean(ours) / np.mean(theirs), low, high


def report(folder):
    """Print mean rounds, their ratios to random's, and which client took part how often."""
    base = [one["duration_s"] for one in played(folder, "random")]
    print(f"{'arm':14} rounds  mean s  of random's (95 %)     s/update  late  used by client")
    for name in ARMS:
        rounds = played(folder, name)
        if not rounds or not base:
            continue
        seconds = [one["duration_s"] for one in rounds]
        n_used = sum(len(one["kept"]) for one in rounds)
        ratio, low, high = interval(np.array(seconds) * (COHORT if name == "buffered" else 1), base)
        counts = [sum(one["kept"].count(str(k)) for one in rounds) for k in range(len(DELAYS_S))]
        late = sum(one["n_late"] for one in rounds)
        print(
            f"{name:14} {len(rounds):6d} {np.mean(seconds):7.2f}  {ratio:.2f} "
            f"({low:.3f} to {high:.3f}) {sum(seconds) / n_used:12.2f} {late:5d}  {counts}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each arm")
    parser.add_argument("--scale", type=float, default=1.0, help="of the delays")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, help="default: all")
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not args.report:
        run_all(folder, args.rounds, args.scale, args.arms)
    report(folder)


if __name__ == "__main__":
    main()
