"""Tasks: ragged clients, determinism, dropout, weights, evaluation, and what they refuse."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from bsfl.errors import InvalidInput
from bsfl.learning import shares
from bsfl.learning.models import convolutional
from bsfl.learning.tasks import Local, compile_evaluation, compile_training, image_task, linear_task

RNG = np.random.default_rng(5)
X = RNG.integers(0, 256, (80, 8, 8), dtype=np.uint8)
Y = RNG.integers(0, 3, 80)
RAGGED = [np.arange(1, 4), np.arange(4, 24), np.arange(24, 25), np.arange(25, 80)]
LOCAL = Local(batch_size=4, learning_rate=0.05)


def images(clients=RAGGED, x=X, y=Y, x_test=X, local=LOCAL, **settings):
    return image_task((x, y), (x_test, Y), clients, local, **{"n_labels": 3, **settings})


def leaves(params):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(params)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def averaged(task, params, updates):
    return task.aggregate(params, updates, shares([update.samples for update in updates]))


@pytest.fixture(scope="module")
def task():
    return images()


@pytest.fixture(scope="module")
def start(task):
    return task.init(0)


@pytest.mark.slow
def test_results_do_not_depend_on_threads_or_the_cohort(task, start):
    cohort = np.array([3, 1, 0])
    first = task.train(start, cohort, t=4, seed=2)
    assert [(update.client, update.samples) for update in first] == [(3, 55), (1, 20), (0, 3)]
    for workers in (1, 3):
        other = images(local=replace(LOCAL, workers=workers))
        again = other.train(other.init(0), cohort, t=4, seed=2)
        for one, two in zip(first, again, strict=True):
            (alone,) = other.train(start, np.array([one.client]), t=4, seed=2)
            assert same(one.params, two.params)
            assert same(one.params, alone.params)
            assert one.loss == two.loss == alone.loss
        assert same(averaged(task, start, first), averaged(other, start, again))


def test_the_loss_of_a_client_is_the_mean_over_its_samples():
    """At a rate that moves nothing, the loss is that of the start: mean y^2 for w = 0."""
    x, y = np.ones((7, 1)), np.arange(7.0)
    local = Local(batch_size=2, learning_rate=1e-12, epochs=2)
    task = linear_task((x, y), (x, y), [np.arange(4), np.arange(4, 7)], local)
    updates = task.train(task.init(0), np.array([0, 1]), t=1, seed=0)
    losses = [update.loss for update in updates]
    np.testing.assert_allclose(losses, [(0 + 1 + 4 + 9) / 4, (16 + 25 + 36) / 3], rtol=1e-6)


@pytest.mark.slow
def test_dropout_drops_only_while_training_and_keeps_the_mean():
    """E[dropped] = kept: over 400 masks the outputs average to those without, within 4 sd."""
    model, none = (convolutional("cnn", (8, 8, 1), 3, dropout=d) for d in (0.25, 0.0))
    params = model.init(np.random.default_rng(0))
    x = X[:1, ..., None].astype(np.float32) / 255
    whole = np.asarray(model.apply(params, x, None)[0])
    keys = jax.random.split(jax.random.key(1), 400)
    assert np.array_equal(none.apply(params, x, keys[0])[0], whole)
    drawn = np.array(jax.vmap(lambda k: model.apply(params, x, k)[0])(keys))
    assert drawn.std(0).min() > 0
    assert (np.abs(drawn.mean(0) - whole) < 4 * drawn.std(0) / 20).all()


def test_an_empty_cohort_changes_nothing(task, start):
    updates = task.train(start, np.array([], dtype=np.int64), t=1, seed=0)
    assert len(updates) == 0
    assert averaged(task, start, updates) is start


@pytest.mark.slow
def test_evaluation_counts_every_test_sample_once():
    """1,203 samples are neither a multiple of a batch nor of a core's share."""
    x, y = RNG.integers(0, 256, (1203, 8, 8), dtype=np.uint8), RNG.integers(0, 3, 1203)
    task = image_task((X, Y), (x, y), RAGGED, LOCAL, n_labels=4)
    params = task.init(0)
    logits = np.asarray(task.learner.model.apply(params, x[..., None] / np.float32(255), None))
    log_odds = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    right, found = logits.argmax(1) == y, task.evaluate(params)
    assert found.loss == pytest.approx(-log_odds[np.arange(1203), y].mean(), rel=1e-5)
    assert found.accuracy == pytest.approx(right.mean())
    by_label = [right[y == k].mean() for k in range(3)]
    assert found.label_accuracy == pytest.approx([*by_label, np.nan], nan_ok=True)


def test_a_regression_has_a_loss_and_no_accuracy():
    x, y = np.zeros((3, 2)), np.array([1.0, 2.0, 3.0])
    task = linear_task((x, y), (x, y), [[0, 1, 2]], LOCAL)
    found = task.evaluate(task.init(0))
    assert found.loss == pytest.approx((1 + 4 + 9) / 3)
    assert found.accuracy is None
    assert found.label_accuracy is None


@pytest.mark.parametrize("network", ["cnn", "vgg"])
@pytest.mark.parametrize("size", ["small", "paper"])
def test_networks_have_the_stated_layers(network, size):
    shape = (28, 28, 1) if network == "cnn" else (32, 32, 3)
    params = convolutional(network, shape, 10, size=size).init(np.random.default_rng(0))
    wide, dense = {"small": ([16, 32], 64), "paper": ([32, 64, 128], 128)}[size]
    if network == "vgg":
        wide = [c for c in {"small": [16, 32, 64], "paper": wide}[size] for _ in range(2)]
    found = [layer["bias"].shape[0] for layer in params.values()]
    assert found == [*wide, dense, 10]


@pytest.mark.slow
def test_vgg_learns_to_tell_two_colours_apart():
    x = np.zeros((32, 8, 8, 3), np.uint8)
    y = np.arange(32) % 2
    x[y == 0, ..., 0] = x[y == 1, ..., 2] = 200
    local = Local(batch_size=8, learning_rate=0.01, optimizer="adam", epochs=5)
    task = image_task((x, y), (x, y), [np.arange(32)], local, network="vgg", dropout=0.0)
    (update,) = task.train(task.init(0), np.array([0]), t=1, seed=0)
    assert task.evaluate(update.params).accuracy == 1.0


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([9], "clients must be between 0 and 3, got 9"),
        ([-1], "clients must be between 0 and 3, got -1"),
        ([1, 1], "clients must be distinct, got [1, 1]"),
        ([0.5], "clients must be a list of whole numbers"),
    ],
)
def test_bad_cohorts(task, start, clients, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        task.train(start, np.array(clients), t=1, seed=0)


NAN = np.full((2, 1), np.nan), np.zeros(2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: images([]), "clients must name at least one client"),
        (lambda: images([[0], []]), "client 1 must hold a list of at least one row number"),
        (lambda: images([[0], [3, 80]]), "client 1 must hold rows between 0 and 79, got 3 to 80"),
        (lambda: images([[0.5]]), "client 0 must hold a list of at least one row number"),
        (lambda: images(dropout=1), "dropout must be at least 0 and below 1"),
        (lambda: images(y=Y[:79]), "train must have one target per input, got"),
        (lambda: images(y=Y - 1), "labels must be whole numbers from 0"),
        (lambda: images(n_labels=2), "n_labels must be at least 3 for these labels, got 2"),
        (lambda: images(x=X[:, 1:], x_test=X[:, 1:]), "even height and width .* got 7 x 8"),
        (lambda: images(x_test=X[:, 2:]), "same shape, got"),
        (lambda: linear_task(NAN, NAN, [[0]], LOCAL), "train inputs must be finite numbers"),
        (lambda: Local(batch_size=0), "batch_size must be a whole number of at least 1"),
        (lambda: Local(workers=0), "workers must be a whole number of at least 1"),
        (lambda: Local(learning_rate=0), "learning_rate must be a finite number above 0"),
        (lambda: Local(momentum=1.0), "momentum must be at least 0 and below 1, got 1.0"),
        (lambda: Local(optimizer="adam", momentum=0.5), "momentum belongs to sgd"),
        (lambda: Local(optimizer="lion"), "optimizer must be one of sgd, adam, got 'lion'"),
        (lambda: shares([1], "loss"), "weighting must be one of samples, equal, got 'loss'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


@pytest.mark.slow
def test_cohorts_and_equal_tasks_share_one_compilation():
    first, again, other = (images(local=replace(LOCAL, learning_rate=r)) for r in (0.1, 0.1, 0.2))
    for cohort in ([0], [1, 2], [3, 0, 1]):
        first.train(first.init(0), np.array(cohort), t=1, seed=0)
    first.evaluate(first.init(0))
    programs = compile_training(first.learner), compile_evaluation(first.learner, 3)
    assert [program._cache_size() for program in programs] == [1, 1]
    assert again.learner is first.learner is not other.learner
