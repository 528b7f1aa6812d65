"""Convolutions and pooling against XLA's own, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bsfl.learning.convolution import conv3x3, conv3x3_input, conv3x3_pool_input, max_pool

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(0)


def reference_conv(x, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)


def reference_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def draw(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


@pytest.mark.parametrize("shape", [(2, 6, 4, 3), (1, 1, 1, 2), (3, 2, 5, 1), (2, 1, 3, 2)])
def test_conv3x3_and_its_gradient(shape):
    x, kernel = draw(*shape), draw(3, 3, shape[3], 5)
    found, back = jax.vjp(conv3x3, x, kernel)
    expected, reference_back = jax.vjp(reference_conv, x, kernel)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    slope = draw(*found.shape)
    for a, b in zip(back(slope), reference_back(slope), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_of_the_input(channels):
    x, kernel = draw(2, 6, 8, channels), draw(3, 3, channels, 4)
    for ours, reference in (
        (conv3x3_input, reference_conv),
        (conv3x3_pool_input, lambda x, k: reference_pool(reference_conv(x, k))),
    ):
        found, back = jax.vjp(lambda k, f=ours: f(x, k), kernel)
        expected, reference_back = jax.vjp(lambda k, f=reference: f(x, k), kernel)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        slope = draw(*found.shape)
        np.testing.assert_allclose(back(slope)[0], reference_back(slope)[0], atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 4, 6, 3), (1, 7, 5, 2)])
def test_max_pool_leaves_out_an_odd_edge(shape):
    x = draw(*shape)
    found, back = jax.vjp(max_pool, x)
    expected, reference_back = jax.vjp(reference_pool, x)
    np.testing.assert_array_equal(found, expected)
    slope = draw(*found.shape)
    np.testing.assert_allclose(back(slope)[0], reference_back(slope)[0])


def test_of_equal_maxima_one_gets_the_gradient():
    slope = jax.grad(lambda x: max_pool(x).sum())(jnp.ones((1, 4, 4, 2)))
    assert slope.sum() == 8
    assert set(np.unique(slope)) == {0.0, 1.0}
