"""The client's side of the Flower peer, as a module: Ray's workers import it.

Each worker process reads the data once and keeps one model, into which it puts the parameters of
every message. A message carries them as Flower's own records do, one array for each tensor.
"""

import os
from functools import cache

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch_network import network, tensors, train_client
from workload import Workload

WORKLOAD = "BSFL_PEER_WORKLOAD"
"""The environment variable that names the workload's file."""

app = ClientApp()


@cache
def worker() -> tuple[nn.Module, torch.Tensor, torch.Tensor, np.ndarray, np.random.Generator]:
    """Return what a worker process keeps: a model, the data, who holds which, and a generator."""
    torch.set_num_threads(1)
    work = Workload.load(os.environ[WORKLOAD])
    return network(), *tensors(work.x, work.y), work.clients, np.random.default_rng(os.getpid())


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train a client and reply with its parameters."""
    model, x, y, clients, rng = worker()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    rows = rng.permutation(clients[int(context.node_config["partition-id"])])
    train_client(model, x[rows], y[rows])
    reply = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(rows)}),
    }
    return Message(content=RecordDict(reply), reply_to=message)
