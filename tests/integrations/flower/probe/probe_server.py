"""Plays rounds under several schedulers in turn and writes down what each one was like."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bsfl.integrations.flower import Scheduler, Selected, make_policy
from flower_app.task import N_FEATURES

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Follow the plan: one training round for every name in its order."""
    plan = json.loads(Path(context.run_config["plan"]).read_text())
    strategies = {name: selected(**settings) for name, settings in plan["strategies"].items()}
    arrays = ArrayRecord({"w": Array(np.zeros(N_FEATURES))})
    with Path(plan["out"]).open("a") as out:
        for name in plan["order"]:
            strategy = strategies[name]
            result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
            arrays = result.arrays or arrays
            note = {"name": name, "t": strategy.scheduler.t, **asdict(strategy.rounds[-1])}
            print(json.dumps(note), file=out, flush=True)


def selected(
    policy: str, cohort_size: int, settings: dict[str, object] | None = None, **options: object
) -> Selected:
    """Return FedAvg under a scheduler."""
    scheduler = Scheduler(make_policy(policy, **settings or {}), cohort_size=cohort_size, seed=3)
    return Selected(FedAvg(fraction_evaluate=0.0), scheduler, **options)
