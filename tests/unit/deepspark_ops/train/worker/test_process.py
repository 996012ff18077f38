"""The ends of a worker that are outcomes, and the ends raised for another try by Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_import.errors import DeviceError
from deepspark_ops.errors import ConfigError, ExchangeUnavailable, TrainingFailed
from deepspark_ops.events import Event
from deepspark_ops.exchange.transport.link import Welcome
from deepspark_ops.train.worker import process as worker_process
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.task import WorkerTask

pytestmark = pytest.mark.tf


class QuietLink:
    def __init__(self) -> None:
        self.sent: list[Event] = []
        self.calls: list[str] = []

    def join(self, worker: int) -> Welcome:
        return Welcome(40, 8, 2, "easgd", 0.45, 4, "local")

    def send_event(self, event: Event) -> None:
        self.sent.append(event)

    def leave(self) -> None:
        self.calls.append("leave")

    def close(self) -> None:
        self.calls.append("close")


def run_with(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> tuple[QuietLink, WorkerOutcome]:
    def train(task, link, welcome):
        if error is not None:
            raise error
        return WorkerOutcome(task.worker, "finished", steps=5)

    monkeypatch.setattr(worker_process, "_train", train)
    link = QuietLink()
    return link, worker_process.run_worker(WorkerTask(Path("/run"), 1, 0, None, 0), link)


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ConfigError("no such file"), "refused"),
        (DeviceError("devices=gpu: TensorFlow sees no GPU"), "refused"),
        (TrainingFailed("loss is nan"), "failed"),
    ],
)
def test_what_no_try_can_cure_is_told_at_once_and_is_an_outcome(monkeypatch, error, ending) -> None:
    link, outcome = run_with(monkeypatch, error)
    assert outcome == WorkerOutcome(1, ending, str(error))
    (event,) = link.sent
    assert (event.kind, event.clock, event.worker) == ("worker_lost", 40, 1)
    assert event.data == {"reason": str(error), "ending": ending}
    assert link.calls == ["leave", "close"]


def test_finished_worker_leaves_without_a_word(monkeypatch) -> None:
    link, outcome = run_with(monkeypatch, None)
    assert (outcome.ending, outcome.steps, link.sent, link.calls) == ("finished", 5, [], ["leave", "close"])


def test_crash_is_told_to_the_server_by_closing_without_leaving(monkeypatch) -> None:
    links = []

    def train(task, link, welcome):
        links.append(link)
        raise ExchangeUnavailable

    monkeypatch.setattr(worker_process, "_train", train)
    with pytest.raises(ExchangeUnavailable):
        worker_process.run_worker(WorkerTask(Path("/run"), 1, 0, None, 0), QuietLink())
    assert links[0].calls == ["close"]


def test_other_versions_and_the_death_before_are_warnings_of_the_worker(tmp_path: Path) -> None:
    link = QuietLink()
    task = WorkerTask(tmp_path / "no run", 1, 1, None, 0, fault_before="SIGSEGV", version_note="other versions on b: x")
    assert worker_process.run_worker(task, link).ending == "refused"
    texts = [event.data["text"] for event in link.sent if event.data.get("warning")]
    assert texts == ["its process before ended by SIGSEGV", "other versions on b: x"]
