"""The example's client, which does whatever its node is configured to do."""

import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from flower_app.client_app import train_here, who_am_i

app = ClientApp()
app.query()(who_am_i)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train as the example does, and report falsely, fail or never reply."""
    does = context.node_config.get("does")
    if does == "fail":
        raise RuntimeError("as configured")
    if does == "nothing":
        time.sleep(3600.0)
    reply = train_here(message, context)
    if "claims-s" in context.node_config:
        reply.content["metrics"]["duration-s"] = float(context.node_config["claims-s"])
    if does == "nan":
        w = reply.content["arrays"]["w"].numpy()
        reply.content["arrays"] = ArrayRecord({"w": Array(np.full_like(w, np.nan))})
    return reply
