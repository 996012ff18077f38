"""The driver's lines and actions for each event, and the reading of a growing file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.events import DRIVER, Event, append_event, make_event, read_events
from deepspark_ops.exchange.transport.link import ExchangeStatus
from deepspark_ops.stores.staging import fetched
from deepspark_ops.train.driver.early_stop import EarlyStop
from deepspark_ops.train.driver.run_report import report_missing
from deepspark_ops.train.driver.run_watch import RunWatch, Throughput
from deepspark_ops.train.driver.tensorboard_file import TensorBoardFile
from deepspark_ops.train.snapshots.snapshot import Snapshot
from deepspark_ops.train.worker.outcome import WorkerOutcome


def status(**changes: object) -> ExchangeStatus:
    fields = {
        "clock": 0, "acknowledged": 0, "finished": False, "live_workers": (), "reissued_grants": 0, "snapshots": (),
        "failure": None, "exchanges": (0, 0), "applied": 0, "staleness_sums": (), "overlap_sums": (),
        "duplicate_chunks": 0, "uncertain_chunks": 0, "moved_bytes": 0,
    }  # fmt: skip
    return ExchangeStatus(**{**fields, **changes})


class FakeSnapshots:
    """Parts are there from the second look on."""

    def __init__(self) -> None:
        self.looks = 0
        self.assembled: list[int] = []

    def is_pending(self, iteration: int) -> bool:
        self.looks += 1
        return self.looks > 1

    def assemble(self, iteration: int) -> Snapshot:
        self.assembled.append(iteration)
        return Snapshot(iteration, Path("w"), Path("s"), Path("t"))


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[RunWatch]:
    board = TensorBoardFile(tmp_path / "board")
    watch = RunWatch(
        tmp_path / "events.jsonl",
        board,
        FakeSnapshots(),
        images_per_step=10,
        first=0,
        early_stop=EarlyStop("0.5@10", 0),
    )
    yield watch
    watch.finish()


def test_a_test_below_the_least_accuracy_is_a_reason_to_stop(watch, tmp_path) -> None:
    append_event(tmp_path / "events.jsonl", make_event("evaluation", clock=12, worker=0, test_net=0, accuracy=0.25))
    watch.step(status)
    assert watch.early_stop.reason == "accuracy 0.25 at clock 12 is below 0.5"


def test_lines_of_workers_are_logged_but_not_those_for_machines(watch, tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    append_event(tmp_path / "events.jsonl", make_event("loss", clock=5, worker=1, loss=0.5))
    append_event(tmp_path / "events.jsonl", make_event("exchange", clock=5, worker=1, bytes=7))
    append_event(tmp_path / "events.jsonl", make_event("worker_lost", clock=6, worker=0, reason="silent"))
    watch.step(status)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "worker 1 loss clock=5 loss=0.5"),
        ("WARNING", "worker 0 worker_lost clock=6 reason=silent"),
    ]


def test_the_server_has_no_line_once_the_run_has_done_its_minibatches(watch, tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    events = tmp_path / "events.jsonl"
    server = {"exchanges_per_s": 2.0}
    append_event(events, Event("stage", 0, DRIVER, {"status": "started", "max_iter": 500}, 1.0))
    append_event(events, Event("server", 500, DRIVER, server, 2.0))  # gathers the last snapshot
    append_event(events, Event("stage", 400, DRIVER, {"status": "stopped"}, 3.0))
    append_event(events, Event("server", 400, DRIVER, server, 4.0))
    append_event(events, Event("stage", 400, DRIVER, {"status": "started", "max_iter": 500}, 5.0))
    append_event(events, Event("server", 450, DRIVER, server, 6.0))
    watch.step(status)
    lines = [record.getMessage() for record in caplog.records if "server" in record.getMessage()]
    assert lines == ["driver server clock=450/500 exchanges/s=2"]


def test_the_server_has_one_line_in_thirty_seconds_and_lines_say_max_iter(watch, tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    append_event(tmp_path / "events.jsonl", Event("stage", 0, DRIVER, {"max_iter": 9000}, 1000.0))
    for second in (1000, 1005, 1029, 1030, 1031):
        append_event(tmp_path / "events.jsonl", Event("server", second, DRIVER, {"exchanges_per_s": 2.0}, second))
    append_event(tmp_path / "events.jsonl", make_event("loss", clock=5, worker=1, loss=0.5))
    watch.step(status)
    assert caplog.messages[1:] == [
        "driver server clock=1000/9000 exchanges/s=2",
        "driver server clock=1030/9000 exchanges/s=2",
        "worker 1 loss clock=5/9000 loss=0.5",
    ]


def test_a_clock_that_is_put_back_silences_no_line(watch, tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    for second in (5000, 5001, 1400, 1401, 9000):
        append_event(tmp_path / "events.jsonl", Event("server", second, DRIVER, {"exchanges_per_s": 2.0}, second))
    watch.step(status)
    assert [message.split()[2] for message in caplog.messages] == ["clock=5000", "clock=1400", "clock=9000"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_removed_events_file_is_told_and_begun_anew(watch, tmp_path, caplog, is_replaced) -> None:
    path = tmp_path / "events.jsonl"
    append_event(path, make_event("stage", stage="train", status="started", max_iter=90))
    append_event(path, make_event("loss", clock=5, worker=1, loss=0.5))
    watch.step(status)
    path.unlink()
    if is_replaced:  # another process was first
        append_event(path, make_event("loss", clock=6, worker=1, loss=0.25))
    watch.step(lambda: status(acknowledged=6))
    append_event(path, make_event("loss", clock=7, worker=1, loss=0.125))
    watch.step(lambda: status(acknowledged=7))
    watch.step(lambda: status(acknowledged=7))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "was removed or replaced: what it told of the run before is lost, the run goes on" in warnings[0]
    events = list(read_events(path))
    assert [event.data["max_iter"] for event in events if event.kind == "stage"] == [90]
    assert [event.clock for event in events if event.kind == "loss"] == ([6, 7] if is_replaced else [7])


@pytest.mark.parametrize(("ending", "error"), [("refused", ConfigError), ("failed", TrainingFailed)])
def test_last_words_of_a_worker_end_the_run_with_its_message(watch, tmp_path, ending, error) -> None:
    event = make_event("worker_lost", worker=0, reason="loss is nan", ending=ending)
    append_event(tmp_path / "events.jsonl", event)
    with pytest.raises(error, match="loss is nan"):
        watch.step(status)


def test_a_worker_that_did_not_come_back_is_told_at_the_end(watch, tmp_path, caplog) -> None:
    path = tmp_path / "events.jsonl"
    for worker in (2, 0, 1):
        append_event(path, make_event("worker_lost", clock=5, worker=worker, reason="silent"))
    watch.step(lambda: status(exchanges=(7, 7, 0, 7)))
    append_event(path, make_event("worker_joined", clock=9, worker=2, transport="socket"))  # nothing is left for it
    last = status(exchanges=(7, 8, 0, 9))
    watch.step(lambda: last)
    report_missing(watch, last)
    watch.step(lambda: last)
    text = "worker {} was lost at minibatch 5 (silent) and did not come back; the run ended with 2 of 4 workers"
    assert [event.data["text"] for event in read_events(path) if event.kind == "note"] == [
        text.format(0),
        text.format(2),
    ]
    warnings = [record for record in caplog.records if "did not come back" in record.getMessage()]
    assert [record.levelno for record in warnings] == [logging.WARNING] * 2


def test_failure_of_the_exchange_ends_the_run(watch) -> None:
    with pytest.raises(TrainingFailed, match="disk is full"):
        watch.step(lambda: status(failure="disk is full"))


def test_a_worker_that_is_given_up_is_an_event_and_a_line_at_once_and_once(watch, tmp_path, caplog) -> None:
    ended = [
        WorkerOutcome(0, "finished"),
        WorkerOutcome(1, "given_up", "worker 1: its process was killed 4 times; lower batch_size"),
    ]
    watch.clock = 40
    for _ in range(3):
        watch.report_ended(ended)
        watch.step(status)
    (event,) = [event for event in read_events(tmp_path / "events.jsonl") if event.kind == "worker_lost"]
    reason = "its process was killed 4 times; lower batch_size"
    assert (event.clock, event.worker, event.data) == (40, 1, {"reason": reason, "ending": "given_up"})
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"worker 1 worker_lost clock=40 reason={reason} ending=given_up")
    ]
    assert list(watch.missing(status())) == [1]


def test_a_refused_worker_that_could_not_join_ends_the_run_at_the_next_look(watch) -> None:
    watch.step(status)
    watch.report_ended([WorkerOutcome(1, "refused", "worker 1 on b: protocol 5 (driver: 6)")])
    with pytest.raises(ConfigError, match="worker 1 on b: protocol 5"):
        watch.step(status)


def test_each_snapshot_is_assembled_once_its_parts_are_there(watch) -> None:
    for _ in range(4):
        watch.step(lambda: status(snapshots=(20,)))
    assert watch._snapshots.assembled == [20]
    assert watch.written == (20,)


def test_throughput_counts_from_the_first_minibatch_seen() -> None:
    rate = Throughput(images_per_step=10)
    assert rate.images_per_s() is None
    rate.see(100.0, 5)
    assert rate.images_per_s() is None
    rate.see(102.0, 25)
    rate.see(109.0, 25)  # waiting for the last snapshot is no training
    assert rate.images_per_s() == 100.0


def test_throughput_counts_from_when_all_workers_have_returned_minibatches() -> None:
    # Two workers, 50 minibatches a call of 10 s each, and one call more of the first: 10 minibatches a second.
    rate = Throughput(images_per_step=10)
    rate.see(110.0, 50, has_all=False)
    assert rate.images_per_s() is None
    for now, acknowledged in ((110.2, 100), (120.0, 150), (120.2, 200)):
        rate.see(now, acknowledged)
    assert rate.images_per_s() == pytest.approx(100.0)
    short = Throughput(images_per_step=10)
    short.see(110.0, 50, has_all=False)
    short.see(120.0, 100, has_all=False)  # the other worker never returned any
    assert short.images_per_s() == pytest.approx(50.0)


def test_devices_are_a_line_per_worker_and_their_reason_is_told_once(
    watch: RunWatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for worker in (0, 1):
        data = {"text": "CPU, 2 threads", "device": "cpu", "gpus": [], "n_threads": 2, "note": f"no card {worker}"}
        append_event(tmp_path / "events.jsonl", make_event("worker_devices", worker=worker, **data))
    with caplog.at_level(logging.INFO):
        watch.step(status)
        watch.step(status)
    assert caplog.messages == [
        "worker 0: CPU, 2 threads",
        "worker 1: CPU, 2 threads",
        "driver clock=0: no card 0",
    ]


def test_shards_that_workers_and_driver_fetched_are_added_up_and_not_logged(watch, tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    fetched.taken()  # of earlier tests
    fetched.add(50)
    for worker in (0, 1, 0):
        append_event(tmp_path / "events.jsonl", make_event("fetch", clock=5, worker=worker, shards=2, bytes=700))
    watch.step(status)
    assert (watch.fetched_shards, watch.fetched_bytes) == (7, 2150)
    assert not caplog.records
