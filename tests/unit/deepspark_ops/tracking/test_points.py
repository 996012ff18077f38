"""The numbers that MLflow gets, against what the events say, read by hand."""

from __future__ import annotations

from collections import defaultdict

import pytest

from deepspark_ops.run_view.series import RunSeries
from deepspark_ops.tracking.points import MAX_POINTS, MAX_WORKERS, MetricPoint, curve_points, evaluation_points
from tests.reference.evaluations import evaluation
from tests.unit.deepspark_ops.run_view.run_events import RUN, loss, stage, started


def series_of(events) -> RunSeries:
    series = RunSeries()
    for at, event in enumerate(events):
        series.take(event, at)
    return series


def by_key(points):
    points_by_key = defaultdict(list)
    for point in points:
        points_by_key[point.key].append((point.step, point.value, point.time_ms))
    return points_by_key


def test_each_number_of_a_report_is_a_point_at_its_clock_and_time() -> None:
    points = by_key(curve_points(series_of(RUN)))
    for worker in (0, 1):
        reports = [event for event in RUN if event.kind == "loss" and event.worker == worker]
        expected = [
            (event.clock, event.data["loss"], int(event.time * 1000))
            for event in reports
            if isinstance(event.data["loss"], float)
        ]
        assert points[f"worker_loss/worker_{worker}"] == expected
    tests = [event for event in RUN if event.kind == "evaluation"]
    assert points["test_0/accuracy"] == [(e.clock, e.data["accuracy"], int(e.time * 1000)) for e in tests]
    assert points["images_per_s"][0][1] == 200  # both workers together


def test_what_is_not_finite_is_left_out() -> None:
    series = series_of([started(0, 1.0), loss(0, 1, 2.0, loss="nan"), loss(0, 9, 3.0), loss(0, 11, 4.0, loss="inf")])
    assert [step for step, _, _ in by_key(curve_points(series))["worker_loss/worker_0"]] == [9]


def test_only_what_came_behind_the_offset_is_told() -> None:
    events = [started(0, 1.0), *(loss(0, at, float(at)) for at in range(2, 10))]
    assert [p.step for p in curve_points(series_of(events), after_offset=5) if p.key == "loss"] == [7, 8, 9]


@pytest.mark.parametrize("n_workers", [1, MAX_WORKERS, MAX_WORKERS + 1])
def test_a_long_run_is_thinned_out_and_keeps_its_ends_and_extremes(n_workers: int) -> None:
    losses = {at: 5.0 - (at % 7) * 0.5 for at in range(1, 16_001)} | {777: 99.0, 12_222: -7.0}
    ended = stage("finished", 16_000, 8_001.0)
    events = [started(0, 0.0), *(loss(at % n_workers, at, at * 0.5, loss=value) for at, value in losses.items()), ended]
    points = curve_points(series_of(events))
    assert len(points) <= MAX_POINTS
    points_of_key = by_key(points)
    lines = {key: value for key, value in points_of_key.items() if key.startswith("worker_loss/")}
    assert len(lines) == (n_workers if n_workers <= MAX_WORKERS else 0)
    assert len(points_of_key["loss"]) <= 1000
    assert (points_of_key["loss"][0][0], points_of_key["loss"][-1][0]) == (1, 16_000)
    if n_workers <= MAX_WORKERS:
        values = {step: value for line in lines.values() for step, value, _ in line}
        assert (values[777], values[12_222]) == (99.0, -7.0)
        assert all(losses[step] == value for step, value in values.items())


def test_a_test_nets_output_has_a_name_that_mlflow_takes() -> None:
    events = [event for event in RUN if event.kind == "evaluation"][:1]
    events[0].data["loss3/top-1 (%)"] = 0.5
    assert "test_0/loss3_top-1 ___" in by_key(curve_points(series_of(events)))
    del events[0].data["loss3/top-1 (%)"]


def test_an_evaluations_figures_are_at_the_iteration_that_was_scored() -> None:
    metrics = evaluation([0, 1, 1, 0], [0, 1, 1, 1], speed=120.0).metrics
    points = {point.key: point for point in evaluation_points(metrics, "evaluation", 40, 5_000)}
    low, high = metrics.top1_interval
    expected = {"top1": 0.75, "top1_low": low, "top1_high": high, "loss": metrics.loss, "images_per_s": 120.0}
    # All answers have confidence 0.9; a tie of a positive with a negative counts one half.
    expected |= {"ece": 0.15, "roc_auc": 2.5 / 3, "average_precision": ((2 / 2 * 2 / 3 + 3 / 4 / 3) + 1 / 2) / 2}
    values = {key: point.value for key, point in points.items()}
    assert values == pytest.approx({f"evaluation/{k}": v for k, v in expected.items()})
    assert points["evaluation/top1"] == MetricPoint("evaluation/top1", 0.75, 1, 5_000)
    no_snapshot = metrics.model_copy(update={"scored": metrics.scored.model_copy(update={"iteration": None})})
    assert {point.step for point in evaluation_points(no_snapshot, "evaluation", 40, 5_000)} == {40}
