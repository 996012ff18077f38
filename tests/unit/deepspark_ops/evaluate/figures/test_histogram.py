import numpy as np
import pytest

from deepspark_ops.evaluate.figures.histogram import HistogramSum


def slow_counts(points, result):
    counts = np.zeros(result.counts.shape, int)
    for point in points:
        cell = tuple(int((value - low) // result.width) for value, low in zip(point, result.low, strict=True))
        counts[cell] += 1
    return counts


@pytest.mark.parametrize("n_axes", [1, 2])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e6])
def test_every_point_is_in_its_box(n_axes, spread):
    points = np.random.default_rng(1).standard_normal((300, n_axes)) * spread + 10.0
    total = HistogramSum(n_axes, most=16)
    for at in range(0, 300, 11):
        total.add(points[at : at + 11])
    result = total.result()
    assert result.counts.tolist() == slow_counts(points, result).tolist()
    assert max(result.counts.shape) <= 16
    assert max(result.counts.shape) >= 8  # no coarser than needed


def test_order_batches_and_processes_do_not_matter():
    rng = np.random.default_rng(2)
    points = rng.standard_cauchy((500, 2))
    undivided = HistogramSum(2, most=32)
    undivided.add(points)
    parts = []
    for part in np.array_split(rng.permutation(points), 7):
        parts.append(HistogramSum(2, most=32))
        for row in part:
            parts[-1].add(row[None])
    total = HistogramSum(2, most=32)
    for part in reversed(parts):
        total.merge(part)
    assert total.result().counts.tolist() == undivided.result().counts.tolist()
    assert (total.result().low, total.result().width) == (undivided.result().low, undivided.result().width)


@pytest.mark.parametrize("values", [[0.0, 0.0], [3.7, 3.7], [-1e-310, 1e300], [0.0, 5e-324], [1e9, 1e9 + 1e-6]])
def test_extreme_values_are_counted(values):
    total = HistogramSum(most=4)
    for value in values:
        total.add(np.array([[value]]))
    assert total.result().counts.sum() == 2
    assert len(total.result().counts) <= 4


def test_nothing_gives_nothing():
    total = HistogramSum(most=4)
    total.add(np.zeros((0, 1)))
    assert total.result().counts.size == 0
