"""A client that trains; the first clients, by partition, are slow."""

import time

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_app.task import data, loss, train

app = ClientApp()


@app.train()
def train_here(message: Message, context: Context) -> Message:
    start = time.monotonic()
    x, y = data(context.node_config["partition-id"])
    time.sleep(delay(context))
    w = train(message.content["arrays"]["w"].numpy(), x, y)
    metrics = {
        "num-examples": len(y),
        "train-loss": loss(w, x, y),
        "duration-s": time.monotonic() - start,
    }
    content = {"arrays": ArrayRecord({"w": Array(w)}), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


@app.query()
def who_am_i(message: Message, context: Context) -> Message:
    """Report the name of this client to the server, the same after a restart."""
    config = ConfigRecord(dict(context.node_config))
    return Message(RecordDict({"node-config": config}), reply_to=message)


def delay(context: Context) -> float:
    """Return for how long this client sleeps: the first clients are the slow ones."""
    place = context.node_config["partition-id"] / context.node_config["num-partitions"]
    return context.run_config["slow-s"] if place < context.run_config["slow-share"] else 0.0
