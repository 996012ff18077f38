import math

import numpy as np
import pytest

from deepspark_ops.evaluate.figures.exact_sum import ExactSums


def awkward(n, columns, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, columns)) * 10.0 ** rng.integers(-300, 300, (n, columns))
    values[rng.random((n, columns)) < 0.1] = 0.0
    values[0] = 5e-324  # the least of all
    return values


def test_sum_is_that_of_fsum():
    values = awkward(500, 3, 1)
    sums = ExactSums(3)
    sums.add(values)
    assert sums.floats() == tuple(math.fsum(column) for column in values.T)


def test_order_batches_and_processes_do_not_matter():
    values = awkward(400, 2, 2)
    total, first, second = ExactSums(2), ExactSums(2), ExactSums(2)
    total.add(values)
    shuffled = np.random.default_rng(3).permutation(values)
    for at in range(0, 200, 7):
        first.add(shuffled[at : min(at + 7, 200)])
    second.add(shuffled[200:])
    second.merge(first)
    assert second.exact() == total.exact()


def test_nothing_cancels():
    sums = ExactSums()
    sums.add(np.array([[1e300], [1e-300], [-1e300]]))
    assert sums.floats() == (1e-300,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_halves_of_a_mantissa_are_not_lost(dtype):
    values = np.full((1000, 1), 1 / 3, dtype)
    sums = ExactSums()
    sums.add(values)
    assert sums.floats() == (math.fsum(values[:, 0].tolist()),)


def test_an_empty_batch_adds_nothing():
    sums = ExactSums(2)
    sums.add(np.zeros((0, 2)))
    assert sums.floats() == (0.0, 0.0)
