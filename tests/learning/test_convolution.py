"""Convolutions and pooling against XLA's own, values and gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bsfl.learning.models import conv3x3, conv3x3_input, conv3x3_pool_input, max_pool

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(0)


def reference_conv(x, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)


def reference_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def draw(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def same_values_and_gradients(ours, reference, *arguments):
    found, back = jax.vjp(ours, *arguments)
    expected, reference_back = jax.vjp(reference, *arguments)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    slope = draw(*found.shape)
    for a, b in zip(back(slope), reference_back(slope), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 6, 4, 3), (3, 2, 5, 1), (2, 3, 2, 2)])
def test_conv3x3(shape):
    same_values_and_gradients(conv3x3, reference_conv, draw(*shape), draw(3, 3, shape[3], 5))


@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_of_the_input(channels):
    x, kernel = draw(2, 6, 8, channels), draw(3, 3, channels, 4)
    same_values_and_gradients(partial(conv3x3_input, x), partial(reference_conv, x), kernel)
    same_values_and_gradients(
        partial(conv3x3_pool_input, x), lambda k: reference_pool(reference_conv(x, k)), kernel
    )


@pytest.mark.parametrize("shape", [(2, 4, 6, 3), (1, 7, 5, 2)])
def test_max_pool_leaves_out_an_odd_edge(shape):
    same_values_and_gradients(max_pool, reference_pool, draw(*shape))


def test_of_equal_maxima_one_gets_the_gradient():
    slope = jax.grad(lambda x: max_pool(x).sum())(jnp.ones((1, 4, 4, 2)))
    assert slope.sum() == 8
    assert set(np.unique(slope)) == {0.0, 1.0}
