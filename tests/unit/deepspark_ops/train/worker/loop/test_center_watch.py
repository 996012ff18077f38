"""The events of the option ``watch`` against plain loops over the numbers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from caffe_import.net.param_layout import ParamEntry
from deepspark_ops.train.worker.loop.center_watch import (
    BINS,
    MOST_BLOBS,
    CenterWatch,
    WatchPlan,
    histogram,
    watched_blobs,
)

BLOBS = (ParamEntry("conv1", 0, 0, (3, 2)), ParamEntry("conv1", 1, 6, (2,)))


def watch(every: int = 10, *, histograms: bool = True, distance: bool = True, clock: int = 0) -> CenterWatch:
    return CenterWatch(WatchPlan(every, BLOBS, histograms, distance), clock)


def slow_norm(values: list[float]) -> float:
    return math.sqrt(sum(value * value for value in values))


def test_a_blobs_values_movement_and_distance_are_counted() -> None:
    noise = np.random.default_rng(1)
    first, second, local = (noise.normal(size=8).astype(np.float32) for _ in range(3))
    watched = watch()
    start = watched.event_data(10, first, local)
    assert set(start) == {
        "every",
        "blobs",
        "distance",
        "norm",
        "values",
        "minibatches",
    }  # no earlier center, so no update
    data = watched.event_data(25, second, local)
    assert data["blobs"] == ["conv1[0]", "conv1[1]"]
    assert data["minibatches"] == 15
    for at, part in enumerate((slice(0, 6), slice(6, 8))):
        values = second[part].tolist()
        assert data["norm"][at] == pytest.approx(slow_norm(values), rel=1e-4)
        assert data["distance"][at] == pytest.approx(slow_norm((local[part] - second[part]).tolist()), rel=1e-4)
        assert data["update"][at] == pytest.approx(slow_norm((second[part] - first[part]).tolist()), rel=1e-4)
        low, high, counts = data["values"][at]
        assert (low, high) == (pytest.approx(min(values), rel=1e-4), pytest.approx(max(values), rel=1e-4))
        width = (max(values) - min(values)) / BINS
        bins = [min(BINS - 1, int((value - min(values)) / width)) for value in values]
        assert counts == [bins.count(at) for at in range(BINS)]
        assert sum(data["updates"][at][2]) == len(values)


def test_an_event_is_due_at_the_first_exchange_at_or_after_each_multiple() -> None:
    watched = watch(10, clock=37)
    dues = []
    for clock in (39, 43, 47, 61, 69, 70):
        if watched.is_due(clock):
            dues.append(clock)
            watched.event_data(clock, np.zeros(8, np.float32), np.zeros(8, np.float32))
    assert dues == [43, 61, 70]


def test_a_worker_says_what_it_alone_knows() -> None:
    zeros = np.zeros(8, np.float32)
    assert set(watch(histograms=False).event_data(10, zeros, zeros)) == {"every", "blobs", "distance"}
    assert "distance" not in watch(distance=False).event_data(10, zeros, zeros)


def test_values_that_are_equal_or_not_finite_have_a_histogram_where_one_can_be() -> None:
    low, high, counts = histogram(np.full(5, 2.0, np.float32)) or [0, 0, []]
    assert low < 2.0 < high
    assert sum(counts) == 5
    assert histogram(np.array([np.nan, np.inf], np.float32)) is None
    _, _, counts = histogram(np.array([np.nan, 1.0, 2.0], np.float32)) or [0, 0, []]
    assert sum(counts) == 2


def test_an_event_of_a_large_net_is_small_and_a_large_blob_is_sampled() -> None:
    entries = [ParamEntry(f"layer_with_a_long_name_{n}", 0, 10 * n, (10,)) for n in range(2_000)]
    blobs = watched_blobs([ParamEntry("bn", 0, 0, (1,), kind="statistic"), *entries])
    assert len(blobs) == MOST_BLOBS
    assert blobs[0].layer == "layer_with_a_long_name_0"
    plan = WatchPlan(1, blobs, has_histograms=True, has_distance=True)
    large = CenterWatch(plan, 0)
    noise = np.random.default_rng(2).normal(size=20_000).astype(np.float32)
    large.event_data(1, noise, noise)
    assert len(json.dumps(large.event_data(2, noise + 1, noise))) < 150_000
    low, high, counts = histogram(np.arange(10_000_000, dtype=np.float32)) or [0, 0, []]
    assert sum(counts) <= 1 << 16
    assert (low, high) == (0.0, pytest.approx(1e7, rel=1e-4))
    assert max(counts) - min(counts) <= 1
