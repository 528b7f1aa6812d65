"""Records of a few short training runs, to be compared before and after a change on one machine.

python -m tests.goldens.training OUT.json [name-substring ...]
python -m tests.goldens.training --compare A.json B.json

What is trained depends on the processor and on the versions of JAX and numba, so nothing of it is a
fixture: write one file with the old sources and one with the new ones, and compare them.
"""

import argparse
import json
import os
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

os.environ.setdefault("PJRT_NPROC", "1")  # sums in one order; JAX reads it when it starts
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")

from bsfl.experiments import parse_scenario
from bsfl.experiments.runner import play

from . import store

# --- the adapter: everything that depends on the API ----------------------------------------------

FIELDS = (
    *("t", "cohort", "kept", "n_available", "duration_s", "clock_s", "n_timeouts"),
    *("train_loss", "test_loss", "test_accuracy", "worst_label_accuracy"),
)
RENAMED = {"t": "round"}
"""Fields of a record that have another name than in the files that are compared."""


def records(content: dict[str, Any], label: str) -> list[dict[str, Any]]:
    """Return the records of one policy of a scenario in its first world, seed 0."""
    scenario = parse_scenario(content, name="golden", file="golden.toml")
    fleet = scenario.simulated_clients(0)
    policy, training = scenario.policy(label, fleet), scenario.training(0, workers=1)
    played = play(scenario, policy, fleet, 0, objective=None, training=training)
    return [
        {name: getattr(record, RENAMED.get(name, name)) for name in FIELDS} for record in played
    ]


# --- the runs -------------------------------------------------------------------------------------

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def shipped(name: str, **changes: Any) -> dict[str, Any]:
    """Return the content of a shipped scenario with some tables or values changed.

    A change is named table__key; tables that are not there are made, and None takes a key out.
    """
    content = tomllib.loads((SCENARIOS / f"{name}.toml").read_text(encoding="utf-8"))
    for path, value in changes.items():
        table, *keys = content, *path.split("__")
        for key in keys[:-1]:
            table = table.setdefault(key, {})
        if value is None:
            table.pop(keys[-1], None)
        else:
            table[keys[-1]] = value
    return content


def cnn(**changes: Any) -> dict[str, Any]:
    """Return a small fleet that trains the CNN on images that come with bsfl."""
    content: dict[str, Any] = {
        "title": "golden",
        "rounds": 30,
        "cohort_size": 5,
        "seeds": 1,
        "clients": {
            "n_clients": 30,
            "tau_min": 1.0,
            "tau_max": 60.0,
            "latency": {"population": "lognormal"},
            "failures": {"probability": 0.1},
        },
        "learning": {
            "dataset": "fashion-mnist-small",
            "network": "cnn",
            "batch_size": 20,
            "learning_rate": 0.05,
            "partition": {"kind": "dirichlet", "alpha": 0.3},
        },
        "policies": {"pace": {}, "oort": {}},
    }
    for path, value in changes.items():
        table, *keys = content, *path.split("__")
        for key in keys[:-1]:
            table = table.setdefault(key, {})
        table[keys[-1]] = value
    return content


DEMO = {"rounds": 40, "time_s": None, "learning__evaluate_every_s": None}
RUNS: dict[str, tuple[dict[str, Any], str]] = {
    "demo/pace": (shipped("demo", **DEMO), "pace"),
    "demo/random": (shipped("demo", **DEMO), "random"),
    "linear/bsfl": (shipped("linear-noniid", rounds=150, time_s=None), "bsfl"),
    "cnn/pace": (cnn(), "pace"),
    "cnn-apply/oort": (cnn(round={"over_selection": 1.4, "late": "apply"}), "oort"),
    "cnn-buffer/pace": (
        cnn(round={"kind": "buffered", "concurrency": 8, "buffer_size": 3}),
        "pace",
    ),
    "cnn-fast/pace": (cnn(learning__engine="fast"), "pace"),
}


def write(path: Path, wanted: list[str]) -> int:
    results = {}
    for name, (content, label) in RUNS.items():
        if wanted and not any(one in name for one in wanted):
            continue
        start = time.perf_counter()
        results[name] = store.plain({"rounds": records(content, label)})
        n_rounds, seconds = len(results[name]["rounds"]), time.perf_counter() - start
        print(f"{name}: {n_rounds} rounds in {seconds:.1f} s", flush=True)
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0


def compare(first: Path, second: Path) -> int:
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (first, second))
    n_different = 0
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            found: str | None = f"only in {first if name in old else second}"
        else:
            found = store.difference(old[name], new[name])
        n_different += found is not None
        print(
            f"{'same' if found is None else 'DIFFERS':8} {name}" + (f": {found}" if found else "")
        )
    return int(n_different > 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.goldens.training", description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, help="file to write")
    parser.add_argument("names", nargs="*", help="substrings of the runs to make; none: all")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"))
    options = parser.parse_args()
    if options.compare:
        return compare(*options.compare)
    if options.out is None:
        parser.error("name a file to write, or two to --compare")
    return write(options.out, options.names)


if __name__ == "__main__":
    sys.exit(main())
