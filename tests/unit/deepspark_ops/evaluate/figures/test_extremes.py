import numpy as np
import pytest

from deepspark_ops.evaluate.figures.extremes import Extremes, NamedSample


@pytest.mark.parametrize("wants_smallest", [True, False])
def test_kept_are_the_first_of_the_sorted(wants_smallest):
    values = np.random.default_rng(1).integers(0, 20, 100).astype(float)
    first, second = (Extremes(6, wants_smallest=wants_smallest) for _ in range(2))
    for at in range(96, -1, -8):
        (first if at > 40 else second).add(values[at : at + 8], start=at)
    second.merge(first)
    sign = 1 if wants_smallest else -1
    expected = sorted(range(100), key=lambda at: (sign * values[at], at))[:6]
    assert second.result() == tuple(NamedSample(at, values[at]) for at in expected)


def test_none_are_kept_of_none():
    extremes = Extremes(0)
    extremes.add(np.ones(3), start=0)
    assert extremes.result() == ()
