"""Tries of a worker's Spark task: what is raised, what is an outcome, and that the last try loads nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deepspark_ops.devices.in_task import TaskGrant
from deepspark_ops.devices.requested import RequestedDevices
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.errors import ExchangeUnavailable, WorkerFenced, WorkerReplaced
from deepspark_ops.events import Event
from deepspark_ops.exchange import client
from deepspark_ops.exchange.transport.link import Welcome
from deepspark_ops.train.worker import spark_task
from deepspark_ops.train.worker.driver_versions import versions_of_training
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.starts import ExchangesFile, note_start

NO_FOLDER = "/dev/null/work"
"""Nothing can be noted there."""
PLAIN = {
    "run_dir": "/run",
    "work": NO_FOLDER,
    "start_state": "",
    "origin": 0,
    "n_workers": 1,
    "worker_tries": 3,
    "address": None,
    "versions": versions_of_training(),
}


def test_other_errors_are_raised_until_the_last_try(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(plain: object, worker: int, attempt: int, grant: object) -> WorkerOutcome:
        msg = f"server is gone at attempt {attempt}"
        raise ExchangeUnavailable(msg)

    monkeypatch.setattr(spark_task, "_run", fail)
    for attempt in (0, 1):
        with pytest.raises(ExchangeUnavailable, match=f"attempt {attempt}"):
            spark_task.run_in_task(PLAIN, 0, attempt, TaskGrant())
    assert spark_task.run_in_task(PLAIN, 0, 2, TaskGrant()) == {
        "worker": 0,
        "ending": "given_up",
        "message": "worker 0: server is gone at attempt 2",
        "steps": 0,
        "exchanges": 0,
    }


def test_a_worker_that_makes_progress_between_its_failures_is_started_again_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(100))
    exchanges = ExchangesFile(tmp_path, now=lambda: float(next(seconds)))

    def fail(plain: object, worker: int, attempt: int, grant: object) -> WorkerOutcome:
        exchanges.see((0, min(attempt, 11) // 2))  # every second process exchanges; none after attempt 10
        msg = f"preempted at attempt {attempt}"
        raise ExchangeUnavailable(msg)

    monkeypatch.setattr(spark_task, "_run", fail)
    plain = {**PLAIN, "work": str(tmp_path)}
    for attempt in range(12):
        with pytest.raises(ExchangeUnavailable, match=f"attempt {attempt}"):
            spark_task.run_in_task(plain, 1, attempt, TaskGrant())
    assert spark_task.run_in_task(plain, 1, 12, TaskGrant())["ending"] == "given_up"


def test_a_worker_given_up_joins_again_and_a_replaced_worker_leaves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ends = [WorkerFenced("worker 0: silent; leaving"), WorkerReplaced("worker 0: a newer process; leaving")]
    attempts = []

    def run(plain: object, worker: int, attempt: int, grant: object) -> WorkerOutcome:
        attempts.append(attempt)
        raise ends.pop(0)

    monkeypatch.setattr(spark_task, "_run", run)
    assert spark_task.run_in_task(PLAIN, 0, 0, TaskGrant())["ending"] == "replaced"
    assert attempts == [0, 1]
    lines = ["worker 0: silent; leaving, and joining again", "worker 0: a newer process; leaving"]
    assert [record.getMessage() for record in caplog.records] == lines
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("crash", "ending"),
    [
        (
            "os.kill(os.getpid(), signal.SIGBUS)",
            "a bus error (SIGBUS) while it read dataset /data/digits: a file of it",
        ),
        ("os.abort()", '"Aborted", a crash in compiled code, while it read dataset /data/digits'),
    ],
)
def test_a_process_that_a_crash_ended_says_so_by_the_next(crash: str, ending: str, tmp_path: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from deepspark_ops.train.worker.fault_file import *\n"
        f"work = Path({str(tmp_path / 'work')!r})\n"
        f"note_faults(work, 0); note_reads(work, 0, ['dataset /data/digits', 'dataset /data/digits']); {crash}"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, stdin=subprocess.DEVNULL).returncode < 0
    plain = {**PLAIN, "work": str(tmp_path / "work")}
    for worker in (0, 1) * 3:
        note_start(tmp_path / "work", worker, 0)
    message = spark_task.run_in_task(plain, 0, 3, TaskGrant())["message"]
    assert message.startswith(
        f"worker 0: its process ended 3 times without an exchange in between, the last one by {ending}"
    )
    assert (
        "its process was killed 3 times without an exchange in between"
        in spark_task.run_in_task(plain, 1, 3, TaskGrant())["message"]
    )


def test_the_try_after_the_last_loads_nothing_and_says_given_up() -> None:
    code = (
        "import sys; from deepspark_ops.train.worker.spark_task import run_in_task\n"
        "found = run_in_task({'worker_tries': 3, 'work': '/dev/null/work'}, 1, 3, None)\n"
        "heavy = [name for name in ('tensorflow', 'numpy', 'h5py', 'caffe_import') if name in sys.modules]\n"
        "print(found['ending'], found['message'], heavy, sep='|')"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ending, message, loaded = completed.stdout.strip().split("|")
    assert (ending, loaded) == ("given_up", "[]")
    assert message.startswith(
        "worker 1: its process was killed 3 times without an exchange in between; where memory ran out, lower"
        " batch_size or give"
    )


def test_a_task_that_gets_its_slot_after_the_end_ends_at_once_and_counts_no_start(tmp_path: Path) -> None:
    driver = ExchangesFile(tmp_path)
    note_start(tmp_path, 0, 0)
    driver.see((7, 0), is_end=True)
    outcome = spark_task.run_in_task({**PLAIN, "work": str(tmp_path)}, 1, 0, TaskGrant())  # there is no server
    assert outcome == WorkerOutcome(1, "finished", "").to_plain()
    assert not (tmp_path / "starts" / "worker_1.json").exists()


class RefusingLink:
    """Keeps what a worker does with its link."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def join(self, worker: int) -> Welcome:
        self.calls.append(f"join {worker}")
        return Welcome(40, 8, 2, "easgd", 0.45, 4, "local")

    def send_event(self, event: Event) -> None:
        self.calls.append(f"{event.kind} {event.data['ending']}: {event.data['reason']}")

    def leave(self) -> None:
        self.calls.append("leave")

    def close(self) -> None:
        self.calls.append("close")


def test_a_worker_without_the_gpu_it_needs_is_refused_and_the_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    link = RefusingLink()
    monkeypatch.setattr(client, "connect", lambda _: link)
    requested = RunDevices(RequestedDevices("gpu", is_required=True))
    plain = {**PLAIN, "devices": requested.to_plain()}
    outcome = spark_task.run_in_task(plain, 1, 0, TaskGrant())
    assert outcome["ending"] == "refused"
    assert outcome["message"].startswith("devices=gpu: Spark assigned the worker's task no GPU; ")
    assert link.calls == ["join 1", f"worker_lost refused: {outcome['message']}", "leave", "close"]


@pytest.mark.parametrize(
    ("versions", "differences"),
    [
        ({**versions_of_training(), "protocol": "0"}, r"protocol \d+ \(driver: 0\)"),
        ({}, r"protocol \d+ \(driver: an older deepspark\)"),
    ],
)
def test_a_worker_of_another_protocol_is_refused_before_it_connects(
    versions: dict[str, str], differences: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "connect", lambda _: pytest.fail("connected"))
    refusal = spark_task.run_in_task({**PLAIN, "versions": versions}, 1, 0, TaskGrant())
    assert refusal["ending"] == "refused"
    assert re.match(rf"worker 1 on \S+ cannot work with this driver: {differences}; ", refusal["message"])


def test_a_task_shows_tensorflow_its_own_gpus_before_anything_imports_it() -> None:
    code = """
import os, sys
from deepspark_ops.devices.in_task import TaskGrant
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.devices.requested import RequestedDevices
from deepspark_ops.events import Event
from deepspark_ops.exchange import client
from deepspark_ops.exchange.transport.link import Welcome
from deepspark_ops.train.worker import spark_task
from deepspark_ops.train.worker.driver_versions import versions_of_training

class Tracer:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"])
            sys.exit(0)

sys.meta_path.insert(0, Tracer())
plain = {"worker_tries": 3, "work": "/dev/null/work", "n_workers": 1}
plain["devices"] = RunDevices(RequestedDevices("gpu")).to_plain()
plain["versions"] = versions_of_training()
spark_task.run_in_task(plain, 0, 0, TaskGrant(("3", "1")))
"""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert completed.stdout.strip() == "3 PCI_BUS_ID"
