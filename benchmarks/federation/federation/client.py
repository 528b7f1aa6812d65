"""A client that sleeps as long as its node is configured to, and says who it is."""

import time

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    time.sleep(float(context.node_config["delay-s"]))
    metrics = MetricRecord({"num-examples": 1})
    content = {"arrays": message.content["arrays"], "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


@app.query()
def who_am_i(message: Message, context: Context) -> Message:
    config = ConfigRecord(dict(context.node_config))
    return Message(RecordDict({"node-config": config}), reply_to=message)
