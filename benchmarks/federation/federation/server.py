"""A server that lets the arms take turns and writes every round to a file."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bsfl import UniformRandom
from bsfl.integrations.flower import Buffered, Scheduler, Selected

ARMS = ("random", "pace", "over-selection", "buffered")
COHORT, BLOCK = 2, 10
N_CLIENTS = 6

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    folder, rounds = Path(context.run_config["folder"]), context.run_config["rounds"]
    arms = {name: strategy(name, folder) for name in context.run_config["arms"].split()}
    for name, until in turns(rounds):
        n_left = until - len(played(folder, name))
        if name not in arms or n_left <= 0:
            continue
        play(arms[name], n_left, grid, folder / f"{name}.jsonl")
        if name in ("over-selection", "buffered"):
            settle(arms[name], grid)


def strategy(name: str, folder: Path) -> Selected | Buffered:
    """Return one arm; it goes on from its file."""
    policy = {"policy": UniformRandom()} if name == "random" else {}
    scheduler = Scheduler(**policy, cohort_size=COHORT, seed=1)
    options = {"min_clients": N_CLIENTS, "state_path": folder / f"{name}.bsfl"}
    if name == "buffered":
        return Buffered(FedAvg(fraction_evaluate=0.0), scheduler, **options)
    if name == "over-selection":
        options["over_selection"] = "auto"
    return Selected(FedAvg(fraction_evaluate=0.0), scheduler, **options)


def turns(rounds: int) -> Iterator[tuple[str, int]]:
    """Yield an arm and how many rounds, or versions, it shall have played after its turn."""
    for start in range(0, rounds, BLOCK):
        end = min(start + BLOCK, rounds)
        for n in range(start + 1, end + 1):
            yield "random", n
            yield "pace", n
        yield "over-selection", end
        yield "buffered", COHORT * end


def played(folder: Path, name: str) -> list[dict]:
    """Return the rounds of an arm so far."""
    path = folder / f"{name}.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def play(arm: Selected | Buffered, n_rounds: int, grid: Grid, path: Path) -> None:
    """Play rounds of one arm and write each down when it is over."""
    arrays = ArrayRecord({"w": Array(np.zeros(10))})
    with path.open("a") as out:

        def note(server_round: int, arrays: ArrayRecord) -> None:
            if server_round > 0:
                print(json.dumps(asdict(arm.rounds[-1])), file=out, flush=True)

        arm.start(grid=grid, initial_arrays=arrays, num_rounds=n_rounds, evaluate_fn=note)


def settle(arm: Selected | Buffered, grid: Grid) -> None:
    """Wait until no client is at work, so that the next arm finds idle clients."""
    run = getattr(arm, "_run", None)
    while run is not None and len(run.free()) < N_CLIENTS:  # stamps late responses as they come
        time.sleep(0.1)
    queries = [Message(RecordDict(), node, MessageType.QUERY) for node in grid.get_node_ids()]
    grid.send_and_receive(queries)  # a SuperNode works one message after the other
