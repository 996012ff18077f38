import pytest

from deepspark_ops.evaluate.parts.part_scores import part_bounds


@pytest.mark.parametrize("n", [1, 9, 10, 11, 53, 100, 1001])
@pytest.mark.parametrize("batch_size", [1, 7, 10, 100])
@pytest.mark.parametrize("n_at_once", [1, 2, 16])
@pytest.mark.parametrize("most", [5, 50, 10_000])
def test_parts_hold_every_sample_once_and_begin_with_a_batch(n, batch_size, n_at_once, most):
    bounds = part_bounds(n, batch_size=batch_size, n_at_once=n_at_once, most=most)
    assert [at for start, stop in bounds for at in range(start, stop)] == list(range(n))
    assert all(start % batch_size == 0 for start, _ in bounds)
    assert all(stop - start <= max(batch_size, most + batch_size - 1) for start, stop in bounds)
    n_batches = -(-n // batch_size)
    assert len(bounds) >= min(n_at_once, n_batches) // 2  # whole batches do not always divide evenly
