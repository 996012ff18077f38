import math
from dataclasses import replace

import pytest

from deepspark_ops.events import DRIVER, Event
from deepspark_ops.run_view.series import RunSeries
from tests.unit.deepspark_ops.run_view.run_events import RUN, loss, stage, started


def series_of_events(events):
    series = RunSeries()
    for at, event in enumerate(events):
        series.take(event, at)
    return series


def points(columns, name, **kwargs):
    clock, time, value = columns.line(name, **kwargs)
    return list(zip(clock.tolist(), time.tolist(), value.tolist(), strict=True))


def test_each_worker_has_its_lines_and_a_number_it_did_not_report_is_left_out() -> None:
    series = series_of_events(RUN)
    assert points(series.workers[1], "loss") == [(100, 1014.0, 1.0), (260, 1030.0, math.inf), (400, 1044.0, 0.25)]
    assert points(series.workers[0], "distance") == [(200, 1024.0, 0.25)]
    assert "staleness" not in series.workers[0].values


def test_a_loss_that_is_no_number_and_a_lost_worker_break_their_lines() -> None:
    series = series_of_events(RUN)
    assert points(series.workers[0], "loss")[-1] == (300, 1034.0, math.inf)
    assert points(series.workers[0], "images_per_s")[-1] == (300, 1034.0, 100.0)
    assert (260, 1030.0, math.inf) in points(series.workers[1], "images_per_s")


def test_all_workers_together() -> None:
    series = series_of_events([*RUN, stage("finished", 400, 1050.0)])
    # both; 1 lost; 0 alone; both, though 0 has no newer report at the end of the run
    assert points(series.all_workers, "images_per_s") == [
        (100, 1014.0, 200), (260, 1030.0, 150), (300, 1034.0, 100), (400, 1044.0, 200),
    ]  # fmt: skip
    losses = [value for _, _, value in points(series.all_workers, "loss")]
    assert losses == pytest.approx([1.7, 0.6, math.inf, math.inf])  # worker 0's NaN is not hidden by worker 1
    assert points(series.all_workers, "compute_s")[0] == (100, 1014.0, 0.75)


def joined_event(worker, at):
    return Event("worker_joined", 0, worker, {"transport": "shm"}, at)


def test_a_point_of_all_workers_has_one_report_of_each_so_that_the_line_never_falls_vertically() -> None:
    events = [started(0, 1000.0, n_workers=4), *(joined_event(worker, 1001.0) for worker in range(4))]
    for turn in range(3):
        reports = [loss(w, 100 * turn + w, 1010.0 + 10 * turn + w, loss=8.0 / (turn + 1) + w) for w in range(4)]
        events += reports if turn != 1 else [replace(event, time=1020.0) for event in reversed(reports)]
    series = series_of_events(events)
    assert points(series.all_workers, "loss") == [(3, 1013.0, 9.5), (103, 1020.0, 5.5), (203, 1033.0, 8 / 3 + 1.5)]
    assert {value for _, _, value in points(series.all_workers, "images_per_s")} == {400.0}
    assert points(series.all_workers, "learning_rate") == [(3, 1013.0, 0.01), (103, 1020.0, 0.01), (203, 1033.0, 0.01)]


def test_a_worker_that_does_not_report_holds_the_line_of_all_up_until_another_reports_twice() -> None:
    events = [started(0, 1000.0), joined_event(0, 1001.0), joined_event(1, 1001.0), loss(0, 0, 1004.0, loss=4.0)]
    assert "loss" not in series_of_events(events).all_workers.values, (
        "worker 1 has joined: the first point waits for it"
    )
    events += [loss(1, 1, 1005.0, loss=2.0), loss(0, 100, 1014.0, loss=3.0), loss(0, 200, 1024.0, loss=2.0)]
    series = series_of_events(events)
    assert points(series.all_workers, "loss") == [(1, 1005.0, 3.0), (100, 1014.0, 2.5)]
    events.append(loss(1, 210, 1025.0, loss=1.0))
    assert points(series_of_events(events).all_workers, "loss") == [
        (1, 1005.0, 3.0),
        (100, 1014.0, 2.5),
        (210, 1025.0, 1.5),
    ]
    lost_early = [*events[:4], Event("worker_lost", 0, 1, {"reason": "killed"}, 1006.0)]
    assert points(series_of_events(lost_early).all_workers, "loss") == [(0, 1006.0, 4.0)]


def test_only_what_came_after_an_offset() -> None:
    series = series_of_events(RUN)
    assert points(series.workers[0], "loss", after_offset=5) == points(series.workers[0], "loss")[1:]
    assert points(series.server, "exchanges_per_s", after_offset=10) == []


def test_what_a_later_start_threw_away_is_dropped() -> None:
    series = series_of_events([*RUN, started(250, 2000.0), loss(0, 300, 2010.0, loss=0.2)])
    assert [clock for clock, _, _ in points(series.workers[0], "loss")] == [0, 200, 300]
    assert points(series.workers[0], "loss")[-1] == (300, 2010.0, 0.2)
    assert [clock for clock, _, _ in points(series.tests[0], "accuracy")] == [0]
    assert points(series.all_workers, "images_per_s")[-1] == (300, 2010.0, 100.0)  # nobody of before counts
    assert series.cut_at == len(RUN)
    assert series_of_events([*RUN, started(400, 2000.0)]).cut_at == -1


def test_length_of_an_epoch() -> None:
    assert series_of_events(RUN).minibatches_per_epoch() == (225 - 45) / 4
    assert series_of_events(RUN[:7]).minibatches_per_epoch() == 45
    assert series_of_events(RUN[:6]).minibatches_per_epoch() is None
    other = Event("epoch", 300, DRIVER, {"dataset": "more", "epoch": 1}, 1.0)
    assert series_of_events([*RUN, other]).minibatches_per_epoch() == 45


def test_each_test_net_has_its_outputs() -> None:
    second = Event("evaluation", 400, 0, {"test_net": 1, "accuracy": 0.5, "seconds": 1.0, "prob": [1.0]}, 1050.0)
    series = series_of_events([*RUN, second])
    assert set(series.tests[0].values) == {"accuracy", "loss"}
    assert points(series.tests[1], "accuracy") == [(400, 1050.0, 0.5)]
    assert set(series.tests[1].values) == {"accuracy"}


def test_the_loss_between_two_reports_is_a_point_and_leaves_the_shares_of_time() -> None:
    reports = [loss(0, 100, 1010.0, loss=2.0), loss(1, 100, 1010.0, loss=4.0)]
    pulses = [
        Event("progress", 120, 0, {"loss": 1.0, "images_per_s": 300.0}, 1011.0),
        Event("progress", 121, 1, {"loss": 2.0, "images_per_s": 100.0}, 1011.2),
    ]
    series = series_of_events(
        [started(0, 1000.0), *(Event("worker_joined", 0, w, {}, 1000.0) for w in (0, 1)), *reports, *pulses]
    )
    assert series.workers[0].line("loss")[2].tolist() == [2.0, 1.0]
    assert series.all_workers.line("loss")[2].tolist() == [3.0, 1.5]
    assert series.all_workers.line("images_per_s")[2].tolist() == [200.0, 400.0]
    assert series.all_workers.line("compute_s")[2].tolist() == [0.75, 0.75]
    assert series.workers[0].line("compute_s")[0].tolist() == [100.0]
