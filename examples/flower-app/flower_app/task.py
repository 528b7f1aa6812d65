"""Logistic regression in numpy: every client holds its own noisy draw of the same problem."""

import numpy as np

N_FEATURES, N_SAMPLES, STEPS, RATE = 20, 200, 20, 0.5


def data(seed):
    """Return one client's inputs and labels."""
    truth = np.random.default_rng(0).normal(size=N_FEATURES)
    rng = np.random.default_rng([1, seed])
    x = rng.normal(size=(N_SAMPLES, N_FEATURES))
    return x, (x @ truth + rng.normal(size=N_SAMPLES) > 0).astype(float)


def train(w, x, y):
    """Return the weights after a few steps of gradient descent."""
    for _ in range(STEPS):
        w = w - RATE * x.T @ (predict(w, x) - y) / len(y)
    return w


def predict(w, x):
    """Return the probability of label 1."""
    return 1 / (1 + np.exp(-x @ w))


def loss(w, x, y):
    """Return the mean log loss."""
    p = np.clip(predict(w, x), 1e-9, 1 - 1e-9)
    return float(-np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)))
