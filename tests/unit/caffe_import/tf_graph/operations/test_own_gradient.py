"""A gradient of one's own: the numbers, and no graph that stays in memory after its function."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from caffe_import.tf_graph.operations.own_gradient import own_gradient

pytestmark = pytest.mark.tf


@own_gradient
def tripled_slope(x, y):
    """x * y and x + y, with three times the gradient of each."""
    return [x * y, x + y], lambda of_product, of_sum: (3 * (of_product * y + of_sum), 3 * (of_product * x + of_sum))


def gradients(x, y):
    product, total = tripled_slope(x, y)
    return tf.gradients(tf.reduce_sum(product + 2 * total), [x, y])


X, Y = np.float32([1, 2, 5]), np.float32([3, -1, 4])


def test_gradient_is_the_one_that_the_function_returns():
    of_x, of_y = tf.function(gradients)(X, Y)
    np.testing.assert_array_equal(of_x, 3 * (Y + 2))
    np.testing.assert_array_equal(of_y, 3 * (X + 2))


def test_gradient_holds_in_a_loop():
    @tf.function
    def looped(x):
        _, total = tf.while_loop(
            lambda k, _: k < 3, lambda k, value: (k + 1, tripled_slope(value, Y)[0]), (tf.constant(0), x)
        )
        return tf.gradients(total, x)

    np.testing.assert_array_equal(looped(X)[0], 27 * Y**3)


def test_gradient_holds_outside_of_a_graph():
    x, y = tf.constant(X), tf.constant(Y)
    with tf.GradientTape() as tape:
        tape.watch(x)
        product, _ = tripled_slope(x, y)
    np.testing.assert_array_equal(tape.gradient(product, x), 3 * Y)


def test_a_graph_ends_with_its_function():
    function = tf.function(gradients).get_concrete_function(tf.TensorSpec((3,)), tf.TensorSpec((3,)))
    graph = weakref.ref(function.graph)
    del function
    gc.collect()
    assert graph() is None
