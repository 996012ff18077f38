"""The forecast of memory against peaks that were measured; the table stands in the module's docstring."""

import pytest

from deepspark_ops.preflight.memory.forecast import (
    LIBRARY_BYTES,
    OTHER_BYTES,
    driver_bytes,
    machine_bytes,
    worker_bytes,
)

MIB = 2**20
CAFFENET, GOOGLENET = 60_965_224, 13_378_280
IMAGES = [300 * 3 * 256 * 256] * 2


@pytest.mark.parametrize(
    ("n_params", "activations", "step", "samples", "n_slots", "n_workers", "worker", "driver"),
    [
        (431_080, 4.8, 0.2, [2000 * 28 * 28] * 2, 1, 1, 786, 194),
        (145_578, 22.7, 1.2, [2000 * 3 * 32 * 32] * 2, 1, 1, 859, 186),
        (1_235_496, 294.5, 9.4, IMAGES, 1, 1, 1432, 227),
        (GOOGLENET, 104.7, 2.3, IMAGES, 1, 1, 1827, 628),
        (GOOGLENET, 418.7, 9.2, IMAGES, 1, 1, 2417, 628),
        (CAFFENET, 32.0, 4.7, IMAGES, 1, 1, 3763, 1848),
        (CAFFENET, 32.0, 4.7, IMAGES, 1, 2, 4149, 2078),
        (CAFFENET, 256.2, 37.7, IMAGES, 1, 1, 4214, 1847),
        (CAFFENET, 32.0, 4.7, IMAGES, 2, 1, 4550, 2846),
    ],
)
def test_forecast_is_within_15_percent_of_what_was_measured(
    n_params, activations, step, samples, n_slots, n_workers, worker, driver
):
    forecast = worker_bytes(n_params, int(activations * MIB), n_slots, step_bytes=int(step * MIB), sample_bytes=samples)
    assert forecast == pytest.approx(worker * MIB, rel=0.15)
    assert driver_bytes(n_params, n_slots, n_workers) == pytest.approx(driver * MIB, rel=0.15)


def test_a_second_worker_costs_the_driver_what_was_measured():
    more = driver_bytes(CAFFENET, 1, 2) - driver_bytes(CAFFENET, 1, 1)
    assert more == pytest.approx((2078 - 1848) * MIB, rel=0.05)  # its history, while a snapshot is written


def test_a_dataset_that_is_too_large_is_not_kept():
    assert worker_bytes(0, 0, 1, sample_bytes=[10**9]) == worker_bytes(0, 0, 1)
    assert worker_bytes(0, 0, 1, sample_bytes=[10**6]) == worker_bytes(0, 0, 1) + 10**6


def test_workers_of_one_machine_share_libraries_and_center():
    worker, driver = worker_bytes(CAFFENET, 0, 1), driver_bytes(CAFFENET, 1, 8)
    assert machine_bytes(worker, driver, CAFFENET, 1) == worker + driver + OTHER_BYTES
    shared = LIBRARY_BYTES + 4 * CAFFENET
    assert machine_bytes(worker, driver, CAFFENET, 8) == 8 * worker - 7 * shared + driver + OTHER_BYTES
