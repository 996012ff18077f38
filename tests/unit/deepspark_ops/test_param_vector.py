from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe_import.net.param_layout import ParamEntry, ParamLayout
from deepspark_ops.errors import ConfigError
from deepspark_ops.param_vector import StatisticBlobs, chunk_ranges
from tests.reference.slow_easgd import slow_statistics


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
    blobs = StatisticBlobs.from_layout(layout_with_two_norms())
    assert blobs.positions.tolist() == [6, 7, 8, 9, 10, 15, 16, 17]
    assert blobs.within(8, 16).tolist() == [0, 1, 2, 7]
    assert StatisticBlobs.from_json(blobs.to_json()) == blobs


def test_net_without_statistics_has_none() -> None:
    blobs = StatisticBlobs.from_layout(ParamLayout((ParamEntry("ip", 0, 0, (3,)),), {("ip", 0): 0}))
    assert blobs.n_values == 0
    assert blobs.within(0, 3).tolist() == []


sums = st.floats(-100, 100, width=32)
variances = st.floats(0, 100, width=32)
factors = st.sampled_from([0.0, 1.0, 1.999, 17.25, 999.5])


@given(
    st.lists(st.tuples(sums, variances, sums, variances), min_size=1, max_size=4), factors, factors, st.integers(2, 9)
)
def test_statistics_meet_as_the_slow_reference(
    channels: list[tuple[float, float, float, float]], center_factor: float, local_factor: float, n_workers: int
) -> None:
    width = len(channels)
    blobs = StatisticBlobs.from_json([[0, width, width, 2 * width, 2 * width]])
    center = np.float32([c[0] for c in channels] + [c[1] for c in channels] + [center_factor])
    local = np.float32([c[2] for c in channels] + [c[3] for c in channels] + [local_factor])
    before = center.copy(), local.copy()
    new_center, new_local = blobs.average(center, local, n_workers)
    for i in range(width):
        expected = slow_statistics(
            (center[i].item(), center[width + i].item(), center[-1].item()),
            (local[i].item(), local[width + i].item(), local[-1].item()),
            n_workers,
        )
        for new, wanted in zip((new_center, new_local), expected, strict=True):
            found = (new[i], new[width + i], new[-1])
            # float32 storage; E[x^2] - mean^2 cancels against sums of up to 100
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-2)
    np.testing.assert_array_equal(center, before[0])
    np.testing.assert_array_equal(local, before[1])


def test_equal_statistics_stay_although_factors_differ() -> None:
    blobs = StatisticBlobs.from_json([[0, 1, 1, 2, 2]])
    center, local = np.float32([6.0, 8.0, 2.0]), np.float32([30.0, 40.0, 10.0])
    new_center, new_local = blobs.average(center, local, 4)
    np.testing.assert_allclose(new_local, local, rtol=1e-6)
    np.testing.assert_allclose(new_center[:2] / new_center[2], [3.0, 4.0], rtol=1e-6)
