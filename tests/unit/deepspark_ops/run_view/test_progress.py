import pytest

from deepspark_ops.events import DRIVER, Event
from deepspark_ops.run_view.progress import RunProgress, SnapshotNote
from tests.unit.deepspark_ops.run_view.run_events import RUN, loss, stage, started


def progress_of(events):
    progress = RunProgress()
    for at, event in enumerate(events):
        progress.take(event, at)
    return progress


def test_clock_rate_and_the_time_left() -> None:
    progress = progress_of(RUN)
    assert (progress.clock, progress.max_iter, progress.title) == (400, 1000, "LeNet: easgd, 2 workers")
    # from the first report, at clock 0 and 1004 s, to the last, at 400 and 1044 s
    assert progress.steps_per_s() == 10.0
    assert progress.seconds_left() == 60.0
    assert progress.images_per_s() == 200.0


def test_the_mean_rate_is_images_by_time_and_not_the_mean_of_rates() -> None:
    spent = {"compute_s": 1.0, "data_s": 0.0, "exchange_s": 0.0}
    events = [started(0, 0.0), loss(0, 10, 1.0, images_per_s=600.0, **spent)]
    events.append(loss(0, 20, 10.0, images_per_s=100.0, **{**spent, "data_s": 8.0}))
    events.append(loss(1, 30, 10.0, images_per_s=50.0, **spent))
    assert progress_of(events).mean_images_per_s() == pytest.approx((600 * 1 + 100 * 9) / 10 + 50)
    assert progress_of(events).images_per_s() == 150.0, "the rate of now"
    assert progress_of([*events, stage("finished", 30, 11.0, images_per_s=190.0)]).mean_images_per_s() == 190.0
    killed = progress_of([*events, stage("failed", 30, 11.0, reason="killed")])
    assert killed.mean_images_per_s() == pytest.approx(200.0)
    assert progress_of([]).mean_images_per_s() is None


def test_before_the_first_report_nothing_is_known() -> None:
    progress = progress_of(RUN[:4])
    assert (progress.has_trained, progress.steps_per_s(), progress.seconds_left()) == (False, None, None)
    assert progress.mean_loss() is None
    assert progress_of([]).first_time is None


def test_workers_that_are_lost_and_come_back() -> None:
    progress = progress_of(RUN)
    back = progress.workers[1]
    assert (back.state, back.starts, back.reason, back.clock) == ("training", 2, "silent for 30 s", 400)
    assert back.shares() == {"compute_s": 0.75, "data_s": 0.125, "exchange_s": 0.125}
    assert progress_of(RUN[:14]).workers[1].state == "lost"
    assert progress_of(RUN[:14]).images_per_s() == 150.0


def test_a_given_up_worker_stays_given_up_after_a_silence() -> None:
    given_up = Event("worker_lost", 320, 1, {"reason": "killed 4 times", "ending": "given_up"}, 1040.0)
    missed = Event("worker_lost", 330, 1, {"reason": "silent"}, 1050.0)
    progress = progress_of([*RUN[:14], given_up, missed])
    worker = progress.workers[1]
    assert (worker.state, worker.ending, worker.reason) == ("lost", "given_up", "killed 4 times")
    text = "worker 1 given up: killed 4 times"
    assert (progress.marks[-1].kind, progress.marks[-1].clock, progress.marks[-1].text) == ("lost", 320, text)
    assert [note.text for note in progress.notes if note.is_warning][-1] == text


def test_marks_and_notes_say_what_happened() -> None:
    restart = Event("note", 0, DRIVER, {"text": "the exchange server serves again", "server_start": 2}, 1045.0)
    progress = progress_of([*RUN, restart])
    assert [(mark.kind, mark.clock) for mark in progress.marks] == [
        ("joined", 0), ("joined", 0), ("snapshot", 250), ("lost", 260), ("restarted", 310), ("server", 400),
    ]  # fmt: skip
    assert progress.marks[2].text == "snapshot lenet_iter_250.caffemodel"
    warnings = [note.text for note in progress.notes if note.is_warning]
    assert warnings == ["worker 1 lost: silent for 30 s", "the exchange server serves again"]
    written = SnapshotNote(250, 1028.0, "/r/snapshots/lenet_iter_250.caffemodel", 0.1)
    assert progress.snapshots == {250: written}


def test_a_run_that_goes_on_from_a_snapshot_begins_to_count_there() -> None:
    ended = stage("stopped", 400, 1050.0, signal="SIGTERM")
    assert progress_of([*RUN, ended]).ended == ended.data
    resumed = progress_of([*RUN, ended, started(250, 2000.0), loss(0, 250, 2010.0), loss(0, 350, 2015.0)])
    assert (resumed.ended, resumed.clock, resumed.starts, list(resumed.workers)) == (None, 350, 2, [0])
    assert resumed.steps_per_s() == 20.0
    assert resumed.marks[-1].text == "started again from clock 250"


def test_the_newest_test_of_any_net() -> None:
    newer = Event("evaluation", 400, 0, {"test_net": 1, "accuracy": 0.5}, 1050.0)
    assert progress_of([*RUN, newer]).newest_test == newer
    assert progress_of([newer, *RUN[1:]]).newest_test == newer


def test_a_note_may_be_a_warning() -> None:
    progress = RunProgress()
    progress.take(Event("note", 3, DRIVER, {"text": "1 of 2 workers have a slot", "warning": True}, 1.0))
    progress.take(Event("note", 3, DRIVER, {"text": "all 2 workers have a slot now"}, 2.0))
    assert [note.is_warning for note in progress.notes] == [True, False]


def test_the_last_values_are_those_of_the_last_second() -> None:
    events = (started(0, 1000.0), loss(0, 100, 1010.0, loss=2.0, distance=0.5))
    progress = progress_of([*events, Event("progress", 130, 0, {"loss": 1.0, "images_per_s": 300.0}, 1011.0)])
    assert (progress.clock, progress.mean_loss(), progress.images_per_s()) == (130, 1.0, 300.0)
    assert progress.workers[0].number("distance") == 0.5
    assert sum(progress.workers[0].shares().values()) == pytest.approx(1.0)
    assert progress.workers[0].images == 400.0  # of the report alone: 100 images/s in 4 s
    first = progress_of([events[0], Event("progress", 7, 0, {"loss": 3.0, "images_per_s": 10.0}, 1002.0)])
    assert (first.has_trained, first.mean_loss(), first.images_per_s()) == (True, 3.0, 10.0)
