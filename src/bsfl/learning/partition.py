"""Partitions of labelled data among clients.

Each function takes the label of every sample, K and a generator. It assigns all samples, none of
them twice unless it says so, and at least one to every client; PARTITIONS has their names. Then
with_label_noise gives wrong labels, and with_quality lowers the quality of images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bsfl import validation
from bsfl._core.registry import Registry
from bsfl.errors import InvalidInput
from bsfl.random import stream
from bsfl.types import FloatArray, IntArray, Rng

Range = tuple[float, float]
Labels = npt.ArrayLike
"""The label of every sample, a whole number."""
Clients = Sequence[npt.ArrayLike]
"""For each client, the rows of the data that it holds."""
Images = npt.NDArray[np.uint8]

NOISE_AT_QUALITY_0 = 0.25  # standard deviation, where pixels run from 0 to 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """Samples of every client, one client after the other.

    Attributes:
        indices: Samples, positions in the data; client k holds indices[offsets[k]:offsets[k + 1]].
        offsets: [K + 1], from 0 to the number of samples.
        labels: The label that the client sees on each sample, in the order of `indices`.
        n_labels: Number of labels.
        label_noise: [K] share of each client's labels that are wrong.
        quality: [K] quality of each client's images, from 0 to 1 (without noise).
        chosen: [K] which client of the data each one is; None: the data has no clients.
    """

    indices: IntArray
    offsets: IntArray
    labels: IntArray
    n_labels: int
    label_noise: FloatArray
    quality: FloatArray
    chosen: IntArray | None = None

    @property
    def n_clients(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> IntArray:
        """[K] samples of each client."""
        return np.diff(self.offsets)

    @cached_property
    def owner(self) -> IntArray:
        """The client that holds each sample, in the order of `indices`."""
        return np.repeat(np.arange(self.n_clients), self.sizes)

    @cached_property
    def histogram(self) -> IntArray:
        """[K, n_labels] how often each client sees each label."""
        cell = self.owner * self.n_labels + self.labels
        counts = np.bincount(cell, minlength=self.n_clients * self.n_labels)
        return counts.reshape(self.n_clients, self.n_labels)

    @property
    def label_skew(self) -> float:
        """Mean total variation between the labels of a client and of all: 0 is none, 1 the most."""
        of_all = self.histogram.sum(axis=0) / len(self.indices)
        own = self.histogram / self.sizes[:, np.newaxis]
        return float(np.abs(own - of_all).sum(axis=1).mean() / 2)

    def of(self, client: int) -> IntArray:
        return self.indices[self.offsets[client] : self.offsets[client + 1]]


def checked_rows(clients: Clients, n_rows: int) -> list[IntArray]:
    """Return the rows of each client as arrays, after checking that there are such rows."""
    if len(clients) == 0:
        raise InvalidInput("clients must name at least one client, got none")
    lists = [np.asarray(rows) for rows in clients]
    for k, rows in enumerate(lists):
        if rows.ndim != 1 or len(rows) == 0 or rows.dtype.kind not in "iu":
            raise InvalidInput(f"client {k} must hold a list of at least one row number")
        if rows.min() < 0 or rows.max() >= n_rows:
            raise InvalidInput(
                f"client {k} must hold rows between 0 and {n_rows - 1}, got {rows.min()} to "
                f"{rows.max()}"
            )
    return [rows.astype(np.int64) for rows in lists]


def iid(
    labels: Labels, n_clients: int, rng: Rng, *, samples: int | None = None, reuse: bool = False
) -> Partition:
    """Return clients of equal size that hold every label equally often, up to one sample.

    Args:
        samples: Samples of a client; None: all samples are used. Otherwise the rest stays unused.
        reuse: Whether clients may share samples when there are not enough; a client never holds
            one twice.
    """
    y = _labels(labels, n_clients)
    each = validation.natural("samples", samples) if samples is not None else None
    per_pass = n_clients if each is None else len(y) // each
    if per_pass == 0 or (n_clients > per_pass and not reuse):
        raise InvalidInput(
            f"samples must be at most {len(y) if reuse else len(y) // n_clients} for {n_clients} "
            f"clients and {len(y)} samples{'' if reuse else ' without reuse'}, got {each}"
        )
    held: list[IntArray] = []
    for first in range(0, n_clients, per_pass):
        n_in_pass = min(per_pass, n_clients - first)
        order = _stratified(y, rng)
        order = order if each is None else order[: n_in_pass * each]
        order = order[np.argsort(y[order], kind="stable")]  # taken in turn, label after label
        turn = rng.permutation(n_in_pass)
        held += [order[turn[k] :: n_in_pass] for k in range(n_in_pass)]
    return _split(y, held)


def dirichlet(
    labels: Labels, n_clients: int, rng: Rng, *, alpha: float, size_sigma: float = 0.0
) -> Partition:
    """Return clients whose shares of the labels are Dirichlet: the smaller alpha, the fewer labels.

    Client k draws p_k ~ Dir(alpha n_labels prior), with the data's own label shares as the prior,
    and size_k labels from p_k. Where more samples of a label are drawn than there are, chance
    decides, and the clients without enough draw again from what is left; so every sample is used
    once.

    Args:
        alpha: Concentration per label; at 100 all clients have nearly the same labels, at 0.1
            most samples of a client have one or two.
        size_sigma: As sigma for quantity; 0: all clients have the same size, up to one sample.
    """
    y = _labels(labels, n_clients)
    validation.positive("alpha", alpha)
    supply = np.bincount(y)
    present = supply > 0
    preference = np.zeros((n_clients, len(supply)))
    concentration = np.maximum(alpha * present.sum() * supply[present] / len(y), 1e-6)
    preference[:, present] = rng.dirichlet(concentration, n_clients)
    counts = _allocate(preference, _sizes(len(y), n_clients, size_sigma, rng), supply, rng)
    by_label = [rng.permutation(np.flatnonzero(y == label)) for label in range(len(supply))]
    ends = np.cumsum(counts, axis=0)[:-1].T
    shares = [np.split(own, cuts) for own, cuts in zip(by_label, ends, strict=True)]
    return _split(y, [np.concatenate(pieces) for pieces in zip(*shares, strict=True)])


def shards(labels: Labels, n_clients: int, rng: Rng, *, shards_per_client: int = 2) -> Partition:
    """Return clients that hold a few shards each of the data sorted by label (McMahan et al. 2017).

    The K s shards have equal sizes, up to one sample; a shard may have samples of two labels.
    """
    y = _labels(labels, n_clients)
    s = validation.natural("shards_per_client", shards_per_client)
    if n_clients * s > len(y):
        raise InvalidInput(
            f"shards_per_client must be at most {len(y) // n_clients} for {n_clients} clients and "
            f"{len(y)} samples, got {s}"
        )
    shuffled = rng.permutation(len(y))
    pieces = np.array_split(shuffled[np.argsort(y[shuffled], kind="stable")], n_clients * s)
    hands = rng.permutation(n_clients * s).reshape(n_clients, s)
    return _split(y, [np.concatenate([pieces[i] for i in hand]) for hand in hands])


def quantity(labels: Labels, n_clients: int, rng: Rng, *, sigma: float = 1.0) -> Partition:
    """Return clients of lognormal size with labels at random.

    Sizes are one sample and a share of the rest that is proportional to exp(sigma N(0, 1)).
    """
    y = _labels(labels, n_clients)
    sizes = _sizes(len(y), n_clients, validation.at_least("sigma", sigma, 0.0), rng)
    return _split(y, np.split(rng.permutation(len(y)), np.cumsum(sizes)[:-1]))


def by_client(
    labels: Labels, n_clients: int, rng: Rng, *, client: npt.ArrayLike | None = None
) -> Partition:
    """Return the clients of the data itself, or some of them at random: each holds its own samples.

    The data gives `client`, the number of every sample's client.
    """
    if client is None:
        raise InvalidInput('partition "client" needs data that names the client of each sample')
    owner = np.asarray(client, dtype=np.int64)
    known = np.unique(owner)
    if n_clients > len(known):
        raise InvalidInput(
            f"the data has {len(known)} clients, fewer than the {n_clients} of the scenario"
        )
    chosen = np.sort(rng.choice(known, n_clients, replace=False))
    order = np.argsort(owner, kind="stable")
    first, after = (np.searchsorted(owner[order], chosen, side=s) for s in ("left", "right"))
    held = [order[a:b] for a, b in zip(first, after, strict=True)]
    return replace(_split(_labels(labels, n_clients), held), chosen=chosen)


def with_label_noise(split: Partition, rng: Rng, *, share: Range) -> Partition:
    """Return the split with some labels replaced by another, all others equally likely.

    Each client draws its share of wrong labels uniformly from the range.
    """
    low, high = _range("label_noise", share)
    if split.n_labels < 2 and high > 0:
        raise InvalidInput("label noise needs at least 2 labels, got 1")
    wanted = np.rint(rng.uniform(low, high, split.n_clients) * split.sizes).astype(np.int64)
    order = np.lexsort((rng.random(len(split.indices)), split.owner))  # each client's own, shuffled
    wrong = order[np.arange(len(order)) - split.offsets[split.owner] < wanted[split.owner]]
    labels = split.labels.copy()
    labels[wrong] += rng.integers(1, max(split.n_labels, 2), len(wrong))
    labels %= split.n_labels
    return replace(split, labels=labels, label_noise=wanted / split.sizes)


def with_quality(split: Partition, rng: Rng, *, quality: Range) -> Partition:
    """Return the split with a quality for every client, uniform in the range; see add_noise."""
    low, high = _range("quality", quality)
    return replace(split, quality=rng.uniform(low, high, split.n_clients))


def add_noise(images: Images, quality: float, rng: Rng) -> Images:
    """Return images with Gaussian noise of standard deviation (1 - quality) / 4 of full range."""
    sd = 255.0 * NOISE_AT_QUALITY_0 * (1.0 - validation.between("quality", quality, 0.0, 1.0))
    if sd == 0.0:
        return images
    noise = rng.standard_normal(images.shape, dtype=np.float32)
    return np.clip(np.rint(images + np.float32(sd) * noise), 0, 255).astype(np.uint8)


def client_images(split: Partition, images: Images, client: int, *, seed: int) -> Images:
    """Return the images that one client sees, always the same for a seed."""
    rng = stream(seed, "image-noise", client)
    return add_noise(images[split.of(client)], float(split.quality[client]), rng)


def _labels(labels: Labels, n_clients: int) -> IntArray:
    """Return the labels as whole numbers, at least one for each client."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (len(array) and array.min() < 0):
        raise InvalidInput("labels must be a list of whole numbers of at least 0")
    if validation.natural("n_clients", n_clients) > len(array):
        raise InvalidInput(f"{n_clients} clients cannot share {len(array)} samples")
    return array.astype(np.int64)


def _split(y: IntArray, held: list[IntArray]) -> Partition:
    indices = np.concatenate(held)
    offsets = np.cumsum([0, *map(len, held)])
    seen, n_labels = y[indices], int(y.max()) + 1
    as_is: Any = {"label_noise": np.zeros(len(held)), "quality": np.ones(len(held))}
    return Partition(indices=indices, offsets=offsets, labels=seen, n_labels=n_labels, **as_is)


def _stratified(y: IntArray, rng: Rng) -> IntArray:
    """Return all samples in an order in which every beginning has the labels in equal shares."""
    shuffled = rng.permutation(len(y))
    by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
    counts = np.bincount(y)
    rank = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    return by_label[np.argsort((rank + 0.5) / np.repeat(counts, counts), kind="stable")]


def _sizes(n_samples: int, n_clients: int, sigma: float, rng: Rng) -> IntArray:
    """Return sizes of at least 1 with the given sum; beyond the 1, shares are lognormal."""
    validation.at_least("size_sigma", sigma, 0.0)
    draw = sigma * rng.standard_normal(n_clients)
    weight = np.exp(draw - draw.max())
    exact = (n_samples - n_clients) * weight / weight.sum()
    sizes: IntArray = np.floor(exact).astype(np.int64)
    missing = n_samples - n_clients - int(sizes.sum())
    largest = np.lexsort((rng.random(n_clients), sizes - exact))  # largest remainders first
    sizes[largest[:missing]] += 1
    sizes += 1
    return sizes


def _allocate(preference: FloatArray, sizes: IntArray, supply: IntArray, rng: Rng) -> IntArray:
    """Return [K, n_labels] counts whose rows sum to `sizes` and columns to `supply`.

    Every pass uses up each label that was drawn too often, or is the last: at most n_labels
    passes.
    """
    counts = np.zeros(preference.shape, dtype=np.int64)
    missing, left = sizes.copy(), supply.copy()
    while missing.any():
        weight = np.where(left > 0, preference, 0.0)
        nothing = weight.sum(axis=1) <= 0  # their labels are used up: they take any
        weight[nothing] = left
        drawn = rng.multinomial(missing, weight / weight.sum(axis=1, keepdims=True))
        for label in np.flatnonzero(drawn.sum(axis=0) > left):
            drawn[:, label] = rng.multivariate_hypergeometric(
                drawn[:, label], int(left[label]), method="marginals"
            )
        counts += drawn
        missing -= drawn.sum(axis=1)
        left -= drawn.sum(axis=0)
    return counts


def _range(name: str, value: Range) -> Range:
    low, high = validation.span(name, value)
    if not 0 <= low <= high <= 1:
        raise InvalidInput(f"{name} must be a range within [0, 1], got {[low, high]}")
    return low, high


PARTITIONS: Registry[Callable[..., Partition]] = Registry(
    "partition",
    {
        "iid": iid,
        "dirichlet": dirichlet,
        "shards": shards,
        "quantity": quantity,
        "client": by_client,
    },
    group="bsfl.partitions",
    given=("labels", "n_clients", "rng"),
)
"""Partitions by name; a custom one is a function (labels, n_clients, rng) that returns a Partition,
or the samples of each client as a list of positions."""


def make_partition(
    name: str,
    labels: Labels,
    n_clients: int,
    *,
    seed: int,
    label_noise: Range = (0.0, 0.0),
    quality: Range = (1.0, 1.0),
    **settings: Any,
) -> Partition:
    """Return the split with this registry name, with noise if wanted, from streams of the seed.

    >>> make_partition("iid", [0, 1] * 6, 3, seed=0).histogram.tolist()
    [[2, 2], [2, 2], [2, 2]]
    """
    made = PARTITIONS.call(name, labels, n_clients, stream(seed, "split"), **settings)
    if isinstance(made, Partition):
        split = made
    else:
        y = _labels(labels, len(made))
        split = _split(y, checked_rows(made, len(y)))
    if split.n_clients != n_clients:
        raise InvalidInput(
            f"partition {name!r} must have {n_clients} clients, got {split.n_clients}"
        )
    split = with_label_noise(split, stream(seed, "label-noise"), share=label_noise)
    return with_quality(split, stream(seed, "quality"), quality=quality)
