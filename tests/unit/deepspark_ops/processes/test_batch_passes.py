"""Forward passes at the same time, and passes that hand a state on."""

import threading
from dataclasses import dataclass
from itertools import product

import pytest

from deepspark_ops.processes.batch_passes import MOST_PASS_BYTES, BatchPasses, part_ranges, passes_at_once

LIMIT_S = 60.0


@dataclass(frozen=True)
class Sum:
    value: int
    layer_state: dict[str, int]


@pytest.mark.parametrize(
    ("n_bytes", "n_threads", "is_host", "expected"),
    [
        (2**20, 2, True, 2),
        (MOST_PASS_BYTES, 16, True, 2),
        (MOST_PASS_BYTES + 4, 16, True, 1),  # a second pass would double what is felt
        (2**20, 1, True, 1),
        (2**20, 16, False, 1),
    ],
)
def test_two_passes_at_a_time_where_one_leaves_cores_idle(n_bytes, n_threads, is_host, expected):
    shapes = [(n_bytes // 8, 1), (n_bytes // 8,), ((n_bytes % 8) // 4,)]
    assert passes_at_once(shapes, n_threads, is_host=is_host) == expected


def test_results_come_in_the_order_of_the_batches_two_at_a_time() -> None:
    at_once = threading.Barrier(2)

    def run(batch: int, layer_state: object) -> Sum:
        if batch < 2:
            at_once.wait(LIMIT_S)  # broken unless two passes run at the same time
        return Sum(10 * batch, {})

    passes = BatchPasses(run, {}, n_at_once=2)
    assert [result.value for result in passes.results(range(50))] == list(range(0, 500, 10))


def test_a_state_goes_from_batch_to_batch_and_from_call_to_call() -> None:
    running = threading.Lock()

    def run(batch: int, layer_state: dict[str, int]) -> Sum:
        assert running.acquire(blocking=False), "two passes of a sequence at a time"
        total = layer_state["total"] + batch
        running.release()
        return Sum(total, {"total": total})

    passes = BatchPasses(run, {"total": 100}, n_at_once=2)
    assert [result.value for result in passes.results([1, 2, 3])] == [101, 103, 106]
    assert [result.value for result in passes.results([10, 20])] == [116, 136]


def test_parts_hold_every_sample_once_and_begin_with_a_unit() -> None:
    options = product((1, 7, 9, 10, 11, 53, 55, 100, 1_001, 10_001), (1, 7, 10, 100), (1, 2, 7, 16), (1, 5, 20, 5_000))
    for n, unit, n_slots, most in options:
        ranges = part_ranges(n, n_slots=n_slots, most=most, unit=unit)
        where = f"n={n}, unit={unit}, n_slots={n_slots}, most={most}"
        assert [at for start, stop in ranges for at in range(start, stop)] == list(range(n)), where
        assert all(start % unit == 0 for start, _ in ranges), where
        assert all(0 < stop - start < most + unit for start, stop in ranges), where
        n_units = -(-n // unit)
        assert len(ranges) >= min(n_slots, n_units) // 2, where  # whole units do not always divide evenly
    assert part_ranges(7, n_slots=7, most=1, unit=1) == [(at, at + 1) for at in range(7)]
    assert part_ranges(53, n_slots=4, most=5_000, unit=10) == [(0, 20), (20, 40), (40, 53)]
    assert part_ranges(53, n_slots=1, most=15, unit=10) == [(0, 20), (20, 40), (40, 53)]
