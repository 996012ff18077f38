from itertools import product

from deepspark_ops.evaluate.part_scores import part_bounds


def test_parts_hold_every_sample_once_and_begin_with_a_batch():
    options = product((1, 9, 10, 11, 53, 100, 1001), (1, 7, 10, 100), (1, 2, 16), (5, 50, 10_000))
    for n, batch_size, n_at_once, most in options:
        bounds = part_bounds(n, batch_size=batch_size, n_at_once=n_at_once, most=most)
        where = f"n={n}, batch_size={batch_size}, n_at_once={n_at_once}, most={most}"
        assert [at for start, stop in bounds for at in range(start, stop)] == list(range(n)), where
        assert all(start % batch_size == 0 for start, _ in bounds), where
        assert all(stop - start <= max(batch_size, most + batch_size - 1) for start, stop in bounds), where
        n_batches = -(-n // batch_size)
        assert len(bounds) >= min(n_at_once, n_batches) // 2, where  # whole batches do not always divide evenly
