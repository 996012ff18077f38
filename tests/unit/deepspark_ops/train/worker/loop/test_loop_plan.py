from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.deepspark_ops.train.small_plan import PLAN


@pytest.mark.parametrize(
    ("origin", "initialization", "clock", "expected"),
    [
        (0, True, 0, 0),
        (0, True, 100, 1),
        (0, False, 100, 0),
        (0, False, 250, 2),
        (250, True, 300, 0),
        (300, True, 400, 1),
    ],
)
def test_number_of_earlier_tests(origin: int, initialization: bool, clock: int, expected: int) -> None:
    plan = replace(PLAN, origin=origin, test_interval=100, test_initialization=initialization)
    assert plan.tests_before(clock) == expected
