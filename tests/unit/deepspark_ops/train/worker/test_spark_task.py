"""Tries of a worker's Spark task: what is raised, what is an outcome, and that the last try loads nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deepspark_ops.devices.in_task import TaskGrant
from deepspark_ops.errors import ExchangeUnavailable, WorkerFenced, WorkerReplaced
from deepspark_ops.train.worker import spark_task
from deepspark_ops.train.worker.outcome import WorkerOutcome

PLAIN = {"run_dir": "/run", "start_state": "", "origin": 0, "worker_tries": 3, "address": None}


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


def test_a_worker_that_was_given_up_joins_again_and_a_replaced_one_leaves_without_another_try(
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


def test_the_try_after_the_last_loads_nothing_and_says_given_up() -> None:
    code = (
        "import sys; from deepspark_ops.train.worker.spark_task import run_in_task\n"
        "found = run_in_task({'worker_tries': 3}, 1, 3, None)\n"
        "heavy = [name for name in ('tensorflow', 'numpy', 'h5py', 'caffe_import') if name in sys.modules]\n"
        "print(found['ending'], found['message'], heavy, sep='|')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "given_up|worker 1: its process was killed 3 times|[]"
