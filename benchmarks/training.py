"""Seconds per round of federated training, and how they compare.

    python benchmarks/training.py [--json] [--quick] [--data DIR] [--peers torch=PYTHON ...]

Workload: 500 clients x 120 images of 28 x 28, 25 a round, one local epoch, batch 20, SGD, the small
CNN. Images are drawn, or Fashion-MNIST with --data and a folder of its IDX files (.gz).

1. a warm round: median of 20; 10,000 test images evaluated, as a ratio to it
2. K = 50,000 clients drawn from the same images, as a ratio to K = 500
3. accuracy after 20 rounds
4. peers, each in an environment of its own, in turns with ours: --peers torch=/path/to/python
"""

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from clock import machine, ratio

from bsfl.learning.tasks import JaxTask, Local, image_task

PEERS = ("torch",)
LOCAL = Local(batch_size=20, learning_rate=0.1)
N_CLIENTS, N_IMAGES, COHORT = 500, 120, 25


def drawn_images(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return ten smooth patterns under heavy noise."""
    patterns = np.random.default_rng(0).normal(size=(10, 7, 7)).repeat(4, axis=1).repeat(4, axis=2)
    y = rng.integers(0, 10, n)
    noise = rng.normal(size=(n, 28, 28), scale=3.0).astype(np.float32)
    return np.clip(128 + 30 * (patterns[y] + noise), 0, 255).astype(np.uint8), y


def read_idx(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    x = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    return x, np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)


class Rounds:
    """A task that trains one more round each time it is called."""

    def __init__(self, task: JaxTask, seed: int = 0):
        self.task, self.params, self.t = task, task.init(seed), 0
        self.rng = np.random.default_rng(seed)

    def __call__(self, cohort: np.ndarray | None = None) -> None:
        """Train a given cohort, or a random one."""
        self.t += 1
        if cohort is None:
            cohort = self.rng.choice(self.task.n_clients, COHORT, replace=False)
        self.params = self.task.train(self.params, cohort, t=self.t, seed=0).params
        self.params["output"]["bias"].block_until_ready()


class Peer:
    """The same workload in another process, which trains a round when told to."""

    def __init__(self, name: str, python: str, workload: Path):
        script = Path(__file__).parent / "peers" / f"{name}_peer.py"
        command = [python, str(script), str(workload)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.ready = self.process.stdout.readline().strip() == "ready"

    def ask(self, question: str) -> float:
        """Send a line and return the number that comes back."""
        print(question, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def bench_rounds(task: JaxTask, crowd: JaxTask, rounds: int) -> dict:
    ours, many = Rounds(task), Rounds(crowd)
    ours()
    took = []
    for _ in range(rounds - 1):
        start = time.perf_counter()
        ours()
        took.append(time.perf_counter() - start)
    accuracy = task.evaluate(ours.params).accuracy
    evaluation = ratio(lambda: task.evaluate(ours.params), ours, rounds)
    return {
        "seconds_per_round": round(statistics.median(took), 3),
        "accuracy": {"rounds": rounds, "ours": round(accuracy, 3)},
        "evaluation_over_round": {"ratio": round(evaluation, 2), "limit": 1.0},
        "many_over_few_clients": {"ratio": round(ratio(many, ours, rounds), 2), "limit": 1.3},
    }


def bench_peer(name: str, python: str | None, task: JaxTask, workload: Path, rounds: int) -> dict:
    if python is None:
        return {"peer": name, "status": "not installed"}
    peer = Peer(name, python, workload)
    if not peer.ready:
        peer.close()
        return {"peer": name, "status": "did not start"}
    ours, cohorts = Rounds(task), np.load(workload)["cohorts"]
    mine, theirs = [], []
    for i, cohort in enumerate(cohorts[:rounds]):
        start = time.perf_counter()
        ours(cohort)
        mine.append(time.perf_counter() - start)
        theirs.append(peer.ask(f"round {i}"))
    result = {
        "peer": name,
        "status": "measured",
        "theirs_over_ours": round(
            statistics.median(b / a for a, b in zip(mine[1:], theirs[1:], strict=True)), 2
        ),
        "seconds": {"ours": statistics.median(mine[1:]), "theirs": statistics.median(theirs[1:])},
        "accuracy": {"ours": task.evaluate(ours.params).accuracy, "theirs": peer.ask("accuracy")},
    }
    peer.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="5 rounds instead of 20, for a look")
    parser.add_argument("--data", type=Path, help="folder with Fashion-MNIST's four IDX files")
    parser.add_argument("--peers", nargs="*", default=[], metavar="NAME=PYTHON")
    args = parser.parse_args()
    rounds = 5 if args.quick else 20
    rng = np.random.default_rng(1)
    if args.data:
        train, test = read_idx(args.data, "train"), read_idx(args.data, "t10k")
    else:
        train, test = drawn_images(60_000, rng), drawn_images(10_000, rng)
    few = rng.permutation(60_000).reshape(N_CLIENTS, N_IMAGES)
    many = rng.integers(0, 60_000, (100 * N_CLIENTS, N_IMAGES))
    task = image_task(train, test, few, LOCAL)
    result = {
        "machine": machine(),
        **bench_rounds(task, image_task(train, test, many, LOCAL), rounds),
        "peers": [],
    }
    pythons = dict(pair.split("=", 1) for pair in args.peers)
    with tempfile.TemporaryDirectory() as folder:
        workload = Path(folder) / "workload.npz"
        cohorts = [rng.choice(N_CLIENTS, COHORT, replace=False) for _ in range(rounds + 1)]
        arrays = {"x": train[0], "y": train[1], "x_test": test[0], "y_test": test[1]}
        np.savez(workload, **arrays, clients=few, cohorts=cohorts)
        for name in PEERS:
            result["peers"].append(bench_peer(name, pythons.get(name), task, workload, rounds + 1))
    if args.json:
        print(json.dumps(result))
        return
    print(result["machine"])
    print(f"\na warm round takes {result['seconds_per_round']:.3f} s; as ratios to it")
    for name in ("evaluation_over_round", "many_over_few_clients"):
        row = result[name]
        print(f"  {name.replace('_', ' '):<32}{row['ratio']:6.2f} (at most {row['limit']})")
    print(f"\naccuracy after {rounds} rounds: {result['accuracy']['ours']:.3f}")
    for row in result["peers"]:
        if row["status"] != "measured":
            print(f"{row['peer']}: {row['status']}")
            continue
        print(
            f"{row['peer']} takes {row['theirs_over_ours']:.2f} x as long as ours "
            f"({row['seconds']['theirs']:.3f} s against {row['seconds']['ours']:.3f} s), "
            f"accuracy {row['accuracy']['theirs']:.3f} against {row['accuracy']['ours']:.3f}"
        )


if __name__ == "__main__":
    main()
