"""Weights of a watched run by blob: shares, means over workers, what a new start drops, and the bound."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from deepspark_ops.events import Event
from deepspark_ops.run_view.weights import COLUMNS_KEPT, WatchedWeights
from tests.unit.deepspark_ops.run_view.run_events import started

NAMES = ["conv1[0]", "conv1[1]"]


def watched(clock: int, worker: int = 0, *, every: int = 10, **data: Any) -> Event:
    return Event("watch", clock, worker, {"every": every, "blobs": NAMES, **data}, 1000.0 + clock)


def center(clock: int, **data: Any) -> Event:
    fields = {"norm": [2.0, 0.0], "update": [0.5, 1.0], "minibatches": 5, "distance": [1.0, 1.0]}
    histograms = {"values": [[0.0, 1.0, [3, 1]], None], "updates": [[-1.0, 1.0, [2, 2]], None]}
    return watched(clock, **{**fields, **histograms, **data})


def weights_of(*events: Event) -> WatchedWeights:
    weights = WatchedWeights()
    for event in events:
        weights.take(event)
    return weights


def test_distances_are_means_over_the_workers_and_shares_of_the_weights() -> None:
    events = (center(10), watched(13, 1, distance=[3.0, "nan"]), watched(33, 1, distance=[5.0, 5.0]))
    answer = weights_of(*events, center(21, distance=[0.2, 0.0])).answer()
    assert (answer["blobs"], answer["clock"]) == (NAMES, [10, 21])
    assert answer["size"] == [[2.0, 0.0], [2.0, 0.0]]
    assert answer["update"] == [[0.05, None], [0.05, None]]  # a blob of zeros has no share
    assert answer["distance"] == [[1.0, None], [0.1, None]]
    # Worker 1 has not yet reported at 21, and worker 0 not at 33.
    assert answer["workers_clock"] == 10
    assert answer["workers"] == [{"worker": 0, "distance": [0.5, None]}, {"worker": 1, "distance": [1.5, None]}]


def test_a_blob_has_its_histograms_by_moment() -> None:
    weights = weights_of(center(10), watched(13, 1, distance=[3.0, 1.0]), watched(24, 1, distance=[3.0, 1.0]))
    histograms = {"blob": "conv1[0]", "clock": [10], "values": [[0.0, 1.0, [3, 1]]], "updates": [[-1.0, 1.0, [2, 2]]]}
    assert weights.histograms("conv1[0]") == histograms
    assert weights.histograms("conv2[0]") is None


def test_a_run_that_goes_on_from_a_snapshot_drops_the_moments_beyond() -> None:
    weights = weights_of(center(10), center(20), center(30), started(20, 2000.0))
    assert weights.answer()["clock"] == [10, 20]
    weights.take(center(30, norm=[4.0, 1.0]))
    assert weights.answer()["size"][-1] == [4.0, 1.0]


@pytest.mark.parametrize("worker_lags", [0, 7])
def test_a_long_run_keeps_every_second_moment_again_and_again(worker_lags: int) -> None:
    weights = WatchedWeights()
    for ordinal in range(1, 1001):
        weights.take(center(10 * ordinal))
        weights.take(watched(10 * ordinal + worker_lags, 1, distance=[1.0, 1.0]))
    clocks = weights.answer()["clock"]
    assert COLUMNS_KEPT // 2 <= len(clocks) <= COLUMNS_KEPT
    assert {b - a for a, b in pairwise(clocks)} == {160}  # 16 times 10
    assert all(row[0] == 0.5 for row in weights.answer()["distance"])


def test_events_without_their_fields_are_ignored() -> None:
    assert not weights_of(Event("watch", 10, 0, {}, 1.0), Event("watch", 10, 0, {"blobs": NAMES, "every": 0}, 1.0))
    answer = weights_of(center(10, norm=[1.0], update="x"), watched(20, 1, distance=[1.0])).answer()
    assert (answer["size"], answer["update"], answer["distance"]) == ([[None, None]], [[None, None]], [[None, None]])
