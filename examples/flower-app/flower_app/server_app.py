"""Server: a few clients train in every round, and the model is tested on separate data."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bsfl.integrations.flower import Scheduler, Selected, make_policy
from flower_app.task import N_FEATURES, data, loss

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    m = config["cohort-size"]
    strategy = FedAvg(fraction_train=0.001, min_train_nodes=m, fraction_evaluate=0.0)
    strategy = Selected(strategy, Scheduler(make_policy(config["selection"]), cohort_size=m))
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({"w": Array(np.zeros(N_FEATURES))}),
        num_rounds=config["num-rounds"],
        evaluate_fn=evaluate,
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Return the test loss."""
    x, y = data(10**6)
    return MetricRecord({"test-loss": loss(arrays["w"].numpy(), x, y)})
