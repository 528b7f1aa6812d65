"""FedJAX on the training benchmark's workload.

Its federated averaging on its jit backend, which compiles one step and hands clients' steps to JAX
without waiting for them, so that both cores work; the pmap backend on two virtual devices was no
faster. XLA computes each step on one core. The network is written in Haiku. Pooling is the maximum
of the four quarters of each block, and comes before ReLU: the step then takes half as long as with
hk.MaxPool after it, whose gradient is slow on a processor.
"""

import os
import sys

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from workload import BATCH, DROPOUT, RATE, Orders, Workload

jax.tree_map = jax.tree.map  # the name that FedJAX knows

import fedjax  # noqa: E402


def max_pool(x: jax.Array) -> jax.Array:
    """Return the largest of every 2 x 2 block."""
    n, height, width, channels = x.shape
    blocks = x.reshape(n, height // 2, 2, width // 2, 2, channels)
    upper = jnp.maximum(blocks[:, :, 0, :, 0], blocks[:, :, 0, :, 1])
    lower = jnp.maximum(blocks[:, :, 1, :, 0], blocks[:, :, 1, :, 1])
    return jnp.maximum(upper, lower)


def network(batch: dict, is_train: bool = True) -> jax.Array:
    """Return the network's outputs, from parameters drawn as bsfl draws them."""
    he = hk.initializers.VarianceScaling(2.0, "fan_in", "normal")
    x = batch["x"].astype(jnp.float32) / 255
    for channels in (16, 32):
        x = jax.nn.relu(max_pool(hk.Conv2D(channels, 3, w_init=he)(x)))
    x = jax.nn.relu(hk.Linear(64, w_init=he)(hk.Flatten()(x)))
    if is_train:
        x = hk.dropout(hk.next_rng_key(), DROPOUT, x)
    return hk.Linear(10, w_init=he)(x)


def examples(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return data as FedJAX holds them; pixels become numbers inside the compiled step."""
    return {"x": images[..., None], "y": labels.astype(np.int32)}


def fashion_model(sample: dict) -> fedjax.Model:
    """Return the network with its loss."""
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(network),
        sample_batch=sample,
        train_loss=lambda batch, outputs: fedjax.metrics.unreduced_cross_entropy_loss(
            batch["y"], outputs
        ),
        eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
        train_kwargs={"is_train": True},
        eval_kwargs={"is_train": False},
    )


def main() -> None:
    orders = Orders()
    work = Workload.load(sys.argv[1])
    test = fedjax.ClientDataset(examples(work.x_test, work.y_test))
    data = [fedjax.ClientDataset(examples(work.x[rows], work.y[rows])) for rows in work.clients]
    model = fashion_model(examples(work.x[:1], work.y[:1]))
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        grad_fn=fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(RATE),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1),
    )
    key = jax.random.PRNGKey(0)
    state = algorithm.init(model.init(key))

    def accuracy() -> float:
        batches = test.padded_batch(batch_size=500)
        return float(fedjax.evaluate_model(model, state.params, batches)["accuracy"])

    orders.ready("fedjax", "jax")
    for i in orders.rounds(accuracy):
        cohort = work.cohorts[i].tolist()
        keys = jax.random.split(jax.random.fold_in(key, i), len(cohort))
        clients = [(k, data[k], own) for k, own in zip(cohort, keys, strict=True)]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)


if __name__ == "__main__":
    main()
