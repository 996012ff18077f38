from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe_import.net.param_layout import ParamEntry, ParamLayout
from deepspark_ops.errors import ConfigError
from deepspark_ops.param_vector import StatisticBlobs, Vector, chunk_ranges
from tests.reference.slow_normalization import slow_moving_sums


@given(st.integers(0, 500), st.integers(1, 70))
def test_chunks_cover_the_vector_once(n_params: int, chunk: int) -> None:
    ranges = chunk_ranges(n_params, chunk)
    covered = [i for start, stop in ranges for i in range(start, stop)]
    assert covered == list(range(n_params))
    assert all(stop - start <= chunk for start, stop in ranges)


def test_chunk_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="chunk=0: must be at least 1 float"):
        chunk_ranges(5, 0)


def layout_with_two_norms() -> ParamLayout:
    entries = (
        ParamEntry("conv", 0, 0, (2, 3)),
        ParamEntry("bn1", 0, 6, (2,), kind="statistic"),
        ParamEntry("bn1", 1, 8, (2,), kind="statistic"),
        ParamEntry("bn1", 2, 10, (1,), kind="statistic"),
        ParamEntry("ip", 0, 11, (4,)),
        ParamEntry("bn2", 0, 15, (1,), kind="statistic"),
        ParamEntry("bn2", 1, 16, (1,), kind="statistic"),
        ParamEntry("bn2", 2, 17, (1,), kind="statistic"),
    )
    uses = {(e.layer, e.index): i for i, e in enumerate(entries)}
    uses |= {("bn2_shared", i): 5 + i for i in range(3)}
    return ParamLayout(entries, uses)


def test_statistics_are_found_once_even_if_shared() -> None:
    fractions = {"bn1": 0.9, "bn2": 0.5, "bn2_shared": 0.5}
    blobs = StatisticBlobs.from_layout(layout_with_two_norms(), fractions)
    assert [layer.fraction for layer in blobs.layers] == [0.9, 0.5]
    assert blobs.positions.tolist() == [6, 7, 8, 9, 10, 15, 16, 17]
    assert blobs.within(8, 16).tolist() == [0, 1, 2, 7]
    assert StatisticBlobs.from_json(blobs.to_json()) == blobs


def test_statistics_that_never_move_are_constants() -> None:
    """Layers with ``use_global_stats``: nothing gathers or clears them."""
    blobs = StatisticBlobs.from_layout(layout_with_two_norms(), {"bn2": 0.5, "bn2_shared": 0.5})
    assert blobs.positions.tolist() == [15, 16, 17]


def test_net_without_statistics_has_none() -> None:
    blobs = StatisticBlobs.from_layout(ParamLayout((ParamEntry("ip", 0, 0, (3,)),), {("ip", 0): 0}), {})
    assert blobs.n_values == 0
    assert blobs.within(0, 3).tolist() == []


sums = st.floats(-100, 100, width=32)
variances = st.floats(0, 100, width=32)
periods = st.lists(st.lists(st.tuples(sums, variances), max_size=4), min_size=1, max_size=8)
fractions = st.sampled_from([0.0, 0.5, 0.9, 0.999, 1.0])


def packed(values: tuple[float, float, float]) -> Vector:
    return np.float32(values)


@given(st.tuples(sums, variances, st.sampled_from([0.0, 1.0, 17.25, 999.5])), periods, fractions)
def test_the_center_has_what_caffe_has_of_all_workers_minibatches(
    start: tuple[float, float, float], periods: list[list[tuple[float, float]]], fraction: float
) -> None:
    """Each period starts a worker at 0, and the reference sees every minibatch."""
    blobs = StatisticBlobs.from_json([[0, 1, 1, 2, 2, fraction]])
    center = packed(start)
    for batches in periods:
        old_center = center.copy()
        pushed = packed(slow_moving_sums((0.0, 0.0, 0.0), batches, fraction))
        gathered = blobs.gathered(center, pushed)
        np.testing.assert_array_equal(center, old_center)
        center = gathered
    expected = slow_moving_sums(start, [batch for batches in periods for batch in batches], fraction)
    np.testing.assert_allclose(center, expected, rtol=1e-5, atol=1e-4)  # float32 storage of sums of up to 1e4


@given(
    st.lists(st.tuples(sums, variances), max_size=5),
    st.lists(st.tuples(sums, variances), max_size=5),
    fractions.filter(bool),  # at 0 the last minibatch is all, and the center may have it twice
)
def test_sums_since_they_were_handed_over_are_those_of_the_later_minibatches(
    first: list[tuple[float, float]], later: list[tuple[float, float]], fraction: float
) -> None:
    blobs = StatisticBlobs.from_json([[0, 1, 1, 2, 2, fraction]])
    handed_over = packed(slow_moving_sums((0.0, 0.0, 0.0), first, fraction))
    both = packed(slow_moving_sums((0.0, 0.0, 0.0), first + later, fraction))
    expected = slow_moving_sums((0.0, 0.0, 0.0), later, fraction)
    np.testing.assert_allclose(blobs.since(both, handed_over), expected, rtol=1e-5, atol=1e-3)  # differences in float32


def test_layers_forget_each_by_its_own_fraction() -> None:
    blobs = StatisticBlobs.from_json([[0, 2, 2, 4, 4, 0.5], [5, 6, 6, 7, 7, 0.25]])
    center, pushed = np.float32([8.0, 4.0, 2.0, 6.0, 2.0, 8.0, 4.0, 1.0]), np.float32([1, 1, 1, 1, 1.5, 1, 1, 1])
    # k is 2 and 1: what the center had counts a quarter each.
    assert blobs.gathered(center, pushed).tolist() == [3.0, 2.0, 1.5, 2.5, 2.0, 3.0, 2.0, 1.25]
