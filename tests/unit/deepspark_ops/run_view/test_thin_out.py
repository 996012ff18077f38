import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepspark_ops.run_view.thin_out import kept_points, stretch_means


def slow_kept(x, y, n):
    """By stretch, one after the other: first least, first greatest value; both ends; every gap."""
    indices = {i for i in range(len(y)) if not np.isfinite(y[i])}
    finite = [i for i in range(len(y)) if np.isfinite(y[i])]
    indices |= {finite[0], finite[-1]} if finite else set()
    for stretch in range(n):
        inside = [i for i in finite if min(int((x[i] - x[0]) * (n / (x[-1] - x[0]))), n - 1) == stretch]
        if inside:
            indices.add(min(inside, key=lambda i: (y[i], i)))
            indices.add(max(inside, key=lambda i: (y[i], i)))
    return sorted(indices)


@given(
    values=st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0, 7.0, np.inf]), min_size=12, max_size=60),
    n=st.integers(1, 4),
)
def test_least_and_greatest_value_of_each_stretch_stay(values, n) -> None:
    x, y = np.arange(len(values)) * 1.5, np.array(values)
    if np.isfinite(y).any():
        assert kept_points(x, y, n).tolist() == slow_kept(x, y, n)


def test_a_short_line_stays_as_it_is() -> None:
    assert kept_points(np.arange(4.0), np.array([1.0, 1.0, 1.0, 1.0]), 1).tolist() == [0, 1, 2, 3]


def test_no_more_points_than_the_screen_needs() -> None:
    x = np.arange(100_000.0)
    points = kept_points(x, np.sin(x), 300)
    assert len(points) <= 602
    assert points[0] == 0
    assert points[-1] == 99_999


def test_a_line_of_nothing_but_gaps_and_one_at_a_single_clock() -> None:
    assert kept_points(np.arange(9.0), np.full(9, np.inf), 1).tolist() == [0]
    assert kept_points(np.full(9, 5.0), np.arange(9.0), 1).tolist() == [0, 8]


@given(values=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, np.inf]), min_size=1, max_size=40), n=st.integers(1, 12))
def test_each_stretch_of_a_stacked_line_is_its_mean(values, n) -> None:
    x, y = np.arange(len(values)) * 2.0, np.array(values)
    clock, time, means = stretch_means(x, x + 100.0, y, n)
    assert len(clock) == min(n, len(x))
    at = 0
    for i in range(len(clock)):
        end = len(x) * (i + 1) // n if len(x) > n else i + 1
        finite = [value for value in y[at:end] if np.isfinite(value)]
        assert means[i] == (np.float64(sum(finite) / len(finite)) if finite else np.inf)
        assert clock[i] == np.mean(x[at:end]) == time[i] - 100.0
        at = end
    assert at == len(x)
