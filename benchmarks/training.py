r"""Seconds per round of federated training, and how they compare.

    python benchmarks/training.py [--json] [--quick] [--peers NAME=PYTHON ...]

Workload: 500 clients x 120 images of 28 x 28, 25 a round, one local epoch, batch 20, SGD, the small
CNN. The images are Fashion-MNIST where it is found (`bsfl data list` shows where), else drawn.

1. a warm round in JAX: median of 20; 10,000 test images evaluated, as a ratio to it; where numba is
   installed, JAX's rounds over those of engine "fast", in turns
2. K = 50,000 clients drawn from the same images, as a ratio to K = 500
3. accuracy after 20 rounds, over 10 seeds
4. peers on the same work: their rounds and those of our faster engine in turns, the median of the
   ratios, both accuracies

Each peer is a script in benchmarks/peers that says how it is arranged, run by the Python of an
environment of its own. With Python 3.11 and these versions the numbers in the README were taken:

    for name in torch flower pfl fedjax; do python3.11 -m venv peer-$name; done
    peer-torch/bin/pip install torch==2.13.0 numpy
    peer-flower/bin/pip install torch==2.13.0 'flwr[simulation]==1.41.0'
    peer-pfl/bin/pip install torch==2.13.0 'pfl[pytorch]==0.6.0'
    peer-fedjax/bin/pip install fedjax==0.0.17 jax==0.10.2
    python benchmarks/training.py --peers torch=peer-torch/bin/python \
        flower=peer-flower/bin/python pfl=peer-pfl/bin/python fedjax=peer-fedjax/bin/python
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from clock import machine, ratio

from bsfl.errors import DataError, MissingExtra
from bsfl.learning import Task, shares
from bsfl.learning.datasets import load_dataset
from bsfl.learning.tasks import Local, image_task

TARGETS = {"flower": 4.0, "pfl": 2.0, "fedjax": 2.0, "torch": 2.0}
"""For each peer, how many times as long as ours, in the faster engine, its round should take."""

LOCAL = Local(batch_size=20, learning_rate=0.1)
N_CLIENTS, N_IMAGES, COHORT = 500, 120, 25
N_TRAIN, N_TEST = N_CLIENTS * N_IMAGES, 10_000
SEEDS = 10
CLOSE_S = 60

Images = tuple[np.ndarray, np.ndarray]


def find_images() -> tuple[str, Images, Images]:
    """Return what the images are, and those for training and for test with their labels."""
    try:
        data = load_dataset("fashion-mnist")
    except DataError:
        rng = np.random.default_rng(1)
        name = "drawn images: Fashion-MNIST is not here, `bsfl data get fashion-mnist` fetches it"
        return name, drawn_images(N_TRAIN, rng), drawn_images(N_TEST, rng)
    train, test = data.x_train[..., 0], data.x_test[..., 0]
    return "Fashion-MNIST", (train, data.y_train), (test, data.y_test)


def drawn_images(n: int, rng: np.random.Generator) -> Images:
    """Return ten smooth patterns under heavy noise."""
    patterns = np.random.default_rng(0).normal(size=(10, 7, 7)).repeat(4, axis=1).repeat(4, axis=2)
    y = rng.integers(0, 10, n)
    noise = rng.normal(size=(n, 28, 28), scale=3.0).astype(np.float32)
    return np.clip(128 + 30 * (patterns[y] + noise), 0, 255).astype(np.uint8), y


class Rounds:
    """A task that trains one more round each time it is called."""

    def __init__(self, task: Task, seed: int = 0):
        self.task, self.params, self.t, self.seed = task, task.init(seed), 0, seed
        self.rng = np.random.default_rng(seed)

    def __call__(self, cohort: np.ndarray | None = None) -> float:
        """Train a given cohort, or a random one, and return how long it took."""
        start = time.perf_counter()
        self.t += 1
        if cohort is None:
            cohort = self.rng.choice(self.task.n_clients, COHORT, replace=False)
        updates = self.task.train(self.params, cohort, t=self.t, seed=self.seed)
        weights = shares([update.samples for update in updates])
        self.params = self.task.aggregate(self.params, updates, weights)
        np.asarray(self.params["output"]["bias"])  # waits for JAX
        return time.perf_counter() - start

    def accuracy(self) -> float:
        """Return the share of right answers on the test images."""
        return self.task.evaluate(self.params).accuracy


class Peer:
    """The same workload in another process, which trains a round when told to."""

    def __init__(self, name: str, python: str, workload: Path):
        script = Path(__file__).parent / "peers" / f"{name}_peer.py"
        command = [python, str(script), str(workload)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *error: object) -> None:
        """Let the process end, and end it if it does not."""
        try:
            self.process.communicate(timeout=CLOSE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def read(self) -> str:
        """Return the next line, or raise ConnectionError when there is none."""
        line = self.process.stdout.readline()
        if not line:
            raise ConnectionError("the peer ended")
        return line.strip()

    def ask(self, question: str) -> float:
        """Send a line and return the number that comes back."""
        print(question, file=self.process.stdin, flush=True)
        return float(self.read())


def bench_rounds(task: Task, crowd: Task, rounds: int) -> dict:
    """Return the time of a round, and of other work as ratios to it."""
    ours, many = Rounds(task), Rounds(crowd)
    ours()
    seconds = statistics.median(ours() for _ in range(rounds))
    evaluation = ratio(lambda: task.evaluate(ours.params), ours, rounds)
    return {
        "seconds_per_round": round(seconds, 3),
        "evaluation_over_round": {"ratio": round(evaluation, 2), "limit": 1.0},
        "many_over_few_clients": {"ratio": round(ratio(many, ours, rounds), 2), "limit": 1.3},
    }


def fast_task(*arguments: object) -> Task | None:
    """Return the same task for the engine "fast"; None without numba."""
    try:
        from bsfl.learning.fast import fast_image_task
    except MissingExtra:
        return None
    return fast_image_task(*arguments)


def bench_engines(task: Task, fast: Task | None, rounds: int) -> dict:
    """Return JAX's time over that of the engine "fast", on the clock and in use of processors."""
    if fast is None:
        return {"status": "not installed"}
    ours = {"jax": Rounds(task), "fast": Rounds(fast)}
    spent = {name: [] for name in ours}
    for _ in range(rounds + 1):
        for name, engine in ours.items():
            start = time.perf_counter(), time.process_time()
            engine()
            spent[name].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    jax, quick = (np.array(spent[name][1:]) for name in ours)
    clock, processor = np.median(jax / quick, axis=0).round(2).tolist()
    return {
        "status": "measured",
        "jax_over_fast": clock,
        "jax_over_fast_cpu": processor,
        "fast_seconds": round(float(np.median(quick[:, 0])), 3),
    }


def bench_accuracy(task: Task, rounds: int) -> dict:
    """Return the accuracy after some rounds, lowest and highest over the seeds."""
    found = []
    for seed in range(SEEDS):
        ours = Rounds(task, seed)
        for _ in range(rounds):
            ours()
        found.append(round(ours.accuracy(), 3))
    return {"rounds": rounds, "seeds": SEEDS, "lowest": min(found), "highest": max(found)}


def bench_peer(name: str, python: str | None, task: Task, workload: Path) -> dict:
    """Return a peer's row of the table."""
    row = {"peer": name, "target": TARGETS[name], "status": "not installed"}
    if python is None:
        return row
    cohorts = np.load(workload)["cohorts"]
    try:
        with Peer(name, python, workload) as peer:
            versions = peer.read().removeprefix("ready ")
            return row | {"status": "measured", "versions": versions, **turns(peer, task, cohorts)}
    except ConnectionError:
        return row | {"status": "failed"}


def turns(peer: Peer, task: Task, cohorts: np.ndarray) -> dict:
    """Train each cohort here and there; the last is one more, as the first compiles."""
    ours, mine, theirs, accuracy = Rounds(task), [], [], {}
    for i, cohort in enumerate(cohorts):
        if i == len(cohorts) - 1:
            accuracy = {"ours": ours.accuracy(), "theirs": peer.ask("accuracy")}
        mine.append(ours(cohort))
        theirs.append(peer.ask(f"round {i}"))
    ratios = [b / a for a, b in zip(mine[1:], theirs[1:], strict=True)]
    return {
        "theirs_over_ours": round(statistics.median(ratios), 2),
        "seconds": {
            "ours": round(statistics.median(mine[1:]), 3),
            "theirs": round(statistics.median(theirs[1:]), 3),
        },
        "accuracy": {who: round(share, 3) for who, share in accuracy.items()},
    }


def print_result(result: dict) -> None:
    """Print what was measured, the peers as a table."""
    print(f"{result['machine']}\n{result['images']}")
    print(f"\na warm round takes {result['seconds_per_round']:.3f} s; as ratios to it")
    for name in ("evaluation_over_round", "many_over_few_clients"):
        row = result[name]
        print(f"  {name.replace('_', ' '):<32}{row['ratio']:6.2f} (at most {row['limit']})")
    row = result["engines"]
    if row["status"] == "measured":
        print(
            f'  JAX\'s round over that of engine "fast": {row["jax_over_fast"]:.2f}, in '
            f"processor time {row['jax_over_fast_cpu']:.2f}; {row['fast_seconds']:.3f} s"
        )
    found = result["accuracy"]
    print(
        f"\naccuracy after {found['rounds']} rounds, {found['seeds']} seeds: "
        f"{found['lowest']:.3f} to {found['highest']:.3f}"
    )
    print(f"\nours: engine {result['engine']}")
    print("         seconds a round                          accuracy")
    print("peer     theirs    ours  theirs/ours  target    theirs   ours  versions")
    for row in result["peers"]:
        if row["status"] != "measured":
            print(f"{row['peer']:<9}{row['status']}")
            continue
        seconds, accuracy = row["seconds"], row["accuracy"]
        print(
            f"{row['peer']:<9}{seconds['theirs']:6.3f}{seconds['ours']:8.3f}"
            f"{row['theirs_over_ours']:13.2f}{row['target']:8.2f}"
            f"{accuracy['theirs']:10.3f}{accuracy['ours']:7.3f}  {row['versions']}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="5 rounds instead of 20, for a look")
    parser.add_argument("--peers", nargs="*", default=[], metavar="NAME=PYTHON")
    args = parser.parse_args()
    pythons = dict(pair.split("=", 1) for pair in args.peers)
    if unknown := pythons.keys() - TARGETS.keys():
        parser.error(f"unknown peer {', '.join(unknown)}; known are {', '.join(TARGETS)}")
    rounds = 5 if args.quick else 20
    name, train, test = find_images()
    rng = np.random.default_rng(1)
    few = rng.permutation(N_TRAIN).reshape(N_CLIENTS, N_IMAGES)
    many = rng.integers(0, N_TRAIN, (100 * N_CLIENTS, N_IMAGES))
    task, fast = (build(train, test, few, LOCAL) for build in (image_task, fast_task))
    engines = bench_engines(task, fast, rounds)
    quicker = fast is not None and engines["jax_over_fast"] > 1
    result = {
        "machine": f"{machine()}, jax {version('jax')}",
        "images": name,
        **bench_rounds(task, image_task(train, test, many, LOCAL), rounds),
        "engines": engines,
        "engine": "fast" if quicker else "jax",
        "accuracy": bench_accuracy(task, rounds),
    }
    with tempfile.TemporaryDirectory() as folder:
        workload = Path(folder) / "workload.npz"
        cohorts = [rng.choice(N_CLIENTS, COHORT, replace=False) for _ in range(rounds + 1)]
        arrays = {"x": train[0], "y": train[1], "x_test": test[0], "y_test": test[1]}
        np.savez(workload, **arrays, clients=few, cohorts=cohorts)
        ours = fast if quicker else task
        result["peers"] = [bench_peer(name, pythons.get(name), ours, workload) for name in TARGETS]
    print(json.dumps(result)) if args.json else print_result(result)


if __name__ == "__main__":
    main()
