import pytest

from deepspark_ops.predict.part_answers import part_ranges


@pytest.mark.parametrize(
    ("n_records", "n_slots", "most"),
    [(1, 1, 1), (1, 16, 5000), (55, 2, 20), (10_001, 4, 5000), (7, 7, 1)],
)
def test_every_record_is_in_one_part(n_records, n_slots, most):
    ranges = part_ranges(n_records, n_slots=n_slots, most=most)
    assert [number for start, stop in ranges for number in range(start, stop)] == list(range(n_records))
    assert all(0 < stop - start <= most for start, stop in ranges)
    assert len(ranges) >= min(n_records, n_slots) / 2
