"""The example's client, which claims whatever duration its node is configured to claim."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flower_app.client_app import train_here, who_am_i

app = ClientApp()
app.query()(who_am_i)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train as the example does, and lie about how long it took."""
    reply = train_here(message, context)
    if "claims-s" in context.node_config:
        reply.content["metrics"]["duration-s"] = float(context.node_config["claims-s"])
    return reply
