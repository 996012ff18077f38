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


def test_a_part_holds_whole_batches_of_a_net_that_fixes_them():
    assert part_ranges(53, n_slots=4, most=5_000, unit=10) == [(0, 20), (20, 40), (40, 53)]
    assert part_ranges(53, n_slots=1, most=15, unit=10) == [(0, 20), (20, 40), (40, 53)]
