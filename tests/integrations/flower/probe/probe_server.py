"""Plays rounds under several schedulers in turn and writes down what each one was like."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bsfl.integrations.flower import Buffered, Scheduler, Selected, make_policy
from flower_app.task import N_FEATURES

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Follow the plan: some training rounds, or versions, for every name in its order."""
    plan = json.loads(Path(context.run_config["plan"]).read_text())
    strategies = {name: made(**settings) for name, settings in plan["strategies"].items()}
    arrays = ArrayRecord({"w": Array(np.zeros(N_FEATURES))})
    with Path(plan["out"]).open("a") as out:
        for name in plan["order"]:
            strategy = strategies[name]

            def note(server_round: int, arrays: ArrayRecord, name=name, strategy=strategy) -> None:
                if server_round == 0:
                    return
                w = arrays["w"].numpy()
                known = {
                    "name": name,
                    "round": strategy.scheduler.round,
                    "server_round": server_round,
                }
                known |= {"w": w.tolist(), "is_finite": bool(np.isfinite(w).all())}
                # before the first round of a server that goes on from a checkpoint there is none
                known |= asdict(strategy.rounds[-1]) if strategy.rounds else {"is_resumed": True}
                print(json.dumps(known), file=out, flush=True)

            result = strategy.start(
                grid=grid, initial_arrays=arrays, num_rounds=plan["n_rounds"], evaluate_fn=note
            )
            arrays = result.arrays or arrays


def made(
    policy: str,
    cohort_size: int,
    settings: dict[str, object] | None = None,
    kind: str = "Selected",
    **options: object,
) -> Selected | Buffered:
    """Return FedAvg under a scheduler."""
    scheduler = Scheduler(make_policy(policy, **settings or {}), cohort_size=cohort_size, seed=3)
    strategy = Buffered if kind == "Buffered" else Selected
    return strategy(FedAvg(fraction_evaluate=0.0), scheduler, **options)
