"""Partitions: what every one of them keeps, and what each is for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsfl._core.registry import REQUIRED
from bsfl.errors import InvalidInput
from bsfl.learning.partition import (
    PARTITIONS,
    add_noise,
    by_client,
    client_images,
    dirichlet,
    iid,
    make_partition,
    quantity,
    shards,
    with_label_noise,
    with_quality,
)

SETTINGS = {"dirichlet": {"alpha": 0.3}}
BALANCED = np.repeat(np.arange(10), 600)


def rng(seed=0):
    return np.random.default_rng(seed)


def draw(name, labels, n_clients, seed=0):
    settings = SETTINGS.get(name, {})
    if name == "client":  # one after the other, or for 50 of 100
        n_own = 2 * n_clients if len(labels) == len(BALANCED) else n_clients
        settings = {"client": np.arange(len(labels)) % n_own}
    return PARTITIONS[name](labels, n_clients, rng(seed), **settings)


@st.composite
def cases(draw_from):
    labels = draw_from(st.lists(st.integers(0, 6), min_size=2, max_size=80))
    n_clients = draw_from(st.integers(1, len(labels) // 2))  # two samples: enough for two shards
    return np.array(labels), n_clients, draw_from(st.integers(0, 2**16))


@pytest.mark.parametrize("name", PARTITIONS)
@given(case=cases())
def test_every_sample_is_used_once_and_every_client_has_one(name, case):
    labels, n_clients, seed = case
    split = draw(name, labels, n_clients, seed)
    assert sorted(split.indices) == list(range(len(labels)))
    assert split.n_clients == n_clients
    assert split.sizes.min() >= 1
    assert split.labels.tolist() == labels[split.indices].tolist()
    own = [np.bincount(labels[split.of(k)], minlength=split.n_labels) for k in range(n_clients)]
    assert split.histogram.tolist() == np.array(own).tolist()


@pytest.mark.parametrize("name", PARTITIONS)
def test_equal_generators_give_equal_splits_and_others_do_not(name):
    one, same, other = (draw(name, BALANCED, 50, seed) for seed in (1, 1, 2))
    assert one.indices.tobytes() == same.indices.tobytes()
    assert one.offsets.tobytes() == same.offsets.tobytes()
    assert one.indices.tobytes() != other.indices.tobytes()


@given(case=cases())
def test_iid_is_equal_in_size_and_in_every_label_up_to_one(case):
    labels, n_clients, seed = case
    split = iid(labels, n_clients, rng(seed))
    assert np.ptp(split.sizes) <= 1
    assert np.ptp(split.histogram, axis=0).max() <= 1


def test_iid_of_a_given_size():
    # 20 samples a client of 10 labels: 2 of each; the rest stays unused
    few = iid(BALANCED, 100, rng(), samples=20)
    assert (few.histogram == 2).all()
    assert len(set(few.indices)) == 100 * 20
    # with reuse: 6,000 samples serve 50 clients of 120 at a time; 130 clients need three passes
    split = iid(BALANCED, 130, rng(), samples=120, reuse=True)
    assert (split.histogram == 12).all()
    assert all(len(set(split.of(k))) == 120 for k in range(130))
    assert np.bincount(split.indices).max() <= 3


@pytest.mark.parametrize("seed", range(5))
def test_label_skew_grows_as_alpha_falls(seed):
    skews = [
        dirichlet(BALANCED, 100, rng(seed), alpha=a).label_skew for a in (1000, 10, 1, 0.1, 0.01)
    ]
    # 60 samples a client: chance alone gives about 10 sqrt(2 / pi * 0.1 * 0.9 / 60) / 2 = 0.15
    assert skews[0] == pytest.approx(0.15, abs=0.03)
    # alpha = 10 adds the variance 0.09 / 101 to 0.09 / 60: 0.15 sqrt(1 + 60 / 101) = 0.19
    assert skews[1] == pytest.approx(0.19, abs=0.03)
    assert np.all(np.diff(skews) > 0.02)
    assert skews[-1] <= 0.9  # one label only: (0.9 + 9 * 0.1) / 2


def test_dirichlet_shares_have_the_variance_of_their_law():
    # Var p = (1/C)(1 - 1/C) / (C alpha + 1) = 0.09 / 11 at alpha = 1; 600 draws add 0.09 / 600
    split = dirichlet(np.repeat(np.arange(10), 60_000), 1000, rng(), alpha=1.0)
    shares = split.histogram / split.sizes[:, np.newaxis]
    assert shares.var() == pytest.approx(0.09 / 11 + 0.09 / 600, rel=0.05)


def test_dirichlet_sizes_are_equal_unless_asked_otherwise():
    assert (dirichlet(BALANCED, 100, rng(), alpha=0.1).sizes == 60).all()
    assert dirichlet(BALANCED, 100, rng(), alpha=0.1, size_sigma=1.0).sizes.std() > 20


def test_dirichlet_with_extreme_alpha_and_a_label_that_never_occurs():
    gap = np.array([0] * 50 + [3] * 50)
    for alpha in (1e-9, 1e9):
        split = dirichlet(gap, 10, rng(), alpha=alpha)
        assert split.histogram.sum(axis=0).tolist() == [50, 0, 0, 50]


@pytest.mark.parametrize("s", [1, 2, 5])
def test_a_client_holds_its_shards(s):
    # 60 / s samples a shard divide the 600 of a label, so a shard has one label
    split = shards(BALANCED, 100, rng(), shards_per_client=s)
    assert (split.sizes == 60).all()
    assert (split.histogram % (60 // s) == 0).all()
    assert (split.histogram > 0).sum(axis=1).max() <= s


def test_quantity_sizes_are_lognormal():
    sigma = 0.8
    split = quantity(np.zeros(2_000_000, dtype=int), 2000, rng(), sigma=sigma)
    logs = np.log(split.sizes)
    # sd of a sample sd of 2,000 normals is sigma / sqrt(4000) = 0.013
    assert logs.std() == pytest.approx(sigma, abs=0.04)
    assert np.mean((logs - logs.mean()) ** 3) / logs.std() ** 3 == pytest.approx(0, abs=0.2)
    assert np.ptp(quantity(BALANCED, 7, rng(), sigma=0.0).sizes) <= 1
    assert quantity(BALANCED, 50, rng(), sigma=50.0).sizes.min() == 1


def test_label_noise_changes_exactly_its_share_to_other_labels():
    clean = iid(BALANCED, 100, rng())
    noisy = with_label_noise(clean, rng(1), share=(0.25, 0.25))
    wrong = noisy.labels != clean.labels
    assert np.bincount(clean.owner[wrong]).tolist() == [15] * 100  # a quarter of 60
    assert noisy.label_noise == pytest.approx(0.25)
    assert noisy.histogram.sum() == 6000
    shift = np.bincount((noisy.labels - clean.labels)[wrong] % 10, minlength=10)
    # 1,500 wrong labels over 9 others: 167 +- 12 each
    assert np.abs(shift[1:] - 1500 / 9).max() < 5 * 12.2
    assert clean.label_noise.sum() == 0


def test_label_noise_differs_between_clients():
    noise = with_label_noise(iid(BALANCED, 100, rng()), rng(1), share=(0.1, 0.5)).label_noise
    assert 0.1 - 0.5 / 60 <= noise.min() <= noise.max() <= 0.5 + 0.5 / 60
    # U(0.1, 0.5): mean 0.3, sd 0.4 / sqrt(12) = 0.115
    assert noise.mean() == pytest.approx(0.3, abs=4 * 0.0115)
    assert noise.std() == pytest.approx(0.115, abs=0.03)


def test_noise_of_an_image_has_the_stated_deviation():
    grey = np.full((50, 28, 28, 1), 128, dtype=np.uint8)
    noisy = add_noise(grey, 0.6, rng())
    assert noisy.dtype == np.uint8
    # (1 - 0.6) / 4 of 255 = 25.5; rounding adds a variance of 1/12
    assert noisy.std() == pytest.approx(25.5, rel=0.02)
    assert noisy.mean() == pytest.approx(128, abs=0.5)
    assert (add_noise(grey, 1.0, rng()) == grey).all()
    assert grey.max() == 128


def test_a_client_sees_the_same_noise_every_time():
    images = np.full((6000, 4, 4, 1), 100, dtype=np.uint8)
    split = with_quality(iid(BALANCED, 100, rng()), rng(1), quality=(0.5, 0.9))
    assert 0.5 <= split.quality.min() < split.quality.max() <= 0.9
    first, again, other = (client_images(split, images, 3, seed=s) for s in (7, 7, 8))
    assert first.tobytes() == again.tobytes() != other.tobytes()
    assert first.shape == (60, 4, 4, 1)
    assert client_images(split, images, 4, seed=7).tobytes() != first.tobytes()


def test_parts_of_a_partition_do_not_move_each_other():
    plain = make_partition("dirichlet", BALANCED, 20, seed=3, alpha=0.5)
    worse = make_partition(
        "dirichlet", BALANCED, 20, seed=3, alpha=0.5, label_noise=(0, 0.2), quality=(0.5, 1)
    )
    assert plain.indices.tobytes() == worse.indices.tobytes()
    assert (plain.labels == BALANCED[plain.indices]).all()
    assert plain.quality.tolist() == [1.0] * 20
    assert worse.quality.min() < 1
    assert worse.label_noise.max() > 0


def test_the_settings_of_every_split_can_be_listed():
    assert {name: PARTITIONS.settings(name) for name in PARTITIONS} == {
        "iid": {"samples": None, "reuse": False},
        "dirichlet": {"alpha": REQUIRED, "size_sigma": 0.0},
        "shards": {"shards_per_client": 2},
        "quantity": {"sigma": 1.0},
        "client": {"client": None},
    }


def test_by_client_every_client_holds_its_own():
    split = by_client([0, 1, 1, 0, 1], 2, rng(), client=[7, 3, 7, 7, 3])
    assert [split.of(k).tolist() for k in range(2)] == [[1, 4], [0, 2, 3]]
    assert split.chosen.tolist() == [3, 7]
    fewer = by_client(BALANCED, 4, rng(), client=np.arange(6000) % 30)
    assert len(set(fewer.chosen)) == 4
    for k, one in enumerate(fewer.chosen):
        assert fewer.of(k).tolist() == list(range(one, 6000, 30))


def custom(n_clients, first):
    """Return a partition by a function that gives positions to two clients."""

    def halves(labels, n_clients, rng, first):
        return [np.arange(first), np.arange(first, len(labels))]

    noise = {"label_noise": (1.0, 1.0)}
    return make_partition(halves, [0, 0, 1], n_clients, seed=0, first=first, **noise)


def test_a_custom_partition_is_made_of_positions():
    split = custom(2, first=1)
    assert [split.of(k).tolist() for k in range(2)] == [[0], [1, 2]]
    assert split.labels.tolist() == [1, 1, 0], "all wrong"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid([0, 1], 3, rng()), "3 clients cannot share 2 samples"),
        (lambda: iid([0.5, 1.5], 1, rng()), "labels must be a list of whole numbers"),
        (lambda: iid([-1, 1], 1, rng()), "labels must be a list of whole numbers"),
        (lambda: iid([[0, 1]], 1, rng()), "labels must be a list of whole numbers"),
        (lambda: iid([0, 1], 0, rng()), "n_clients must be a whole number of at least 1"),
        (lambda: iid([0, 1], 1, rng(), samples=0), "samples must be a whole number"),
        (lambda: iid([0] * 9, 4, rng(), samples=3), "samples must be at most 2 for 4 clients"),
        (lambda: iid([0] * 2, 2, rng(), samples=3, reuse=True), "samples must be at most 2 for"),
        (lambda: dirichlet([0, 1], 1, rng(), alpha=0), "alpha must be a finite number above 0"),
        (lambda: dirichlet([0], 1, rng(), alpha=1.0, size_sigma=-1.0), "size_sigma must be"),
        (lambda: shards([0] * 9, 3, rng(), shards_per_client=4), "shards_per_client .* at most 3"),
        (lambda: quantity([0, 1], 1, rng(), sigma=-1.0), "sigma must be a finite number"),
        (
            lambda: by_client([0, 1], 3, rng(), client=[0, 1]),
            "the data has 2 clients, fewer than the 3",
        ),
        (lambda: by_client([0, 1], 3, rng()), "needs data that names the client of each sample"),
        (lambda: with_quality(iid([0], 1, rng()), rng(), quality=(0.5, 1.5)), "quality must be"),
        (lambda: with_label_noise(iid([0], 1, rng()), rng(), share=0.5), "label_noise must be"),
        (lambda: with_label_noise(iid([0], 1, rng()), rng(), share=(0, 1)), "at least 2 labels"),
        (lambda: make_partition("idd", [0], 1, seed=0), "unknown partition 'idd'.*'iid'"),
        (lambda: make_partition("dirichlet", [0], 1, seed=0), "needs a value for alpha"),
        (lambda: make_partition("iid", [0], 1, seed=0, alpha=1), "no setting 'alpha'; known are"),
        (lambda: custom(3, first=1), "must have 3 clients, got 2"),
        (lambda: custom(2, first=3), "client 1 must hold a list of at least one row number"),
        (lambda: custom(2, first=4), "client 0 must hold rows between 0 and 2, got 0 to 3"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
