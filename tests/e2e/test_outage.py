"""Airflow's API server is killed while a task starts and in the middle of a training: no task loses its try.

`make test-long` runs this test, in an Airflow of its own. For an outage of five minutes:

    DEEPSPARK_TEST_OUTAGE_S=300 python -m pytest -m long -s tests/e2e/test_outage.py

The training must last longer than the outage: DEEPSPARK_TEST_STEPS_PER_S says how many steps this machine makes in a
second at most.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.events import read_events
from deepspark_ops.local_airflow.api import read_health
from deepspark_ops.local_airflow.services import free_port
from tests.e2e import keep_airflow
from tests.e2e.airflow_instance import AirflowInstance, DagRun
from tests.e2e.small_example import SmallExample

pytestmark = [
    pytest.mark.long,
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.tf,
    pytest.mark.slow,
    pytest.mark.timeout(7200),
]

OUTAGE_S = float(os.environ.get("DEEPSPARK_TEST_OUTAGE_S", "20"))
STEPS_PER_S = float(os.environ.get("DEEPSPARK_TEST_STEPS_PER_S", "4000"))
STEPS = int(STEPS_PER_S * (OUTAGE_S + 40))
WAIT_S = 300.0


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], AirflowInstance]]:
    """Run `deepspark ui` with folders of its own; the shared one's API is needed by other tests."""
    folder, port = tmp_path / "session", free_port()
    folder.mkdir()
    keep_airflow.write_settings(folder)
    process = keep_airflow.start_airflow(folder, port)
    try:
        until(lambda: process.poll() is not None or keep_airflow.is_up(folder, port), "Airflow is up")
        assert process.poll() is None, (folder / keep_airflow.OUTPUT).read_text()
        yield process, AirflowInstance(folder, port)
        process.terminate()
        assert keep_airflow.troubles_of_end(process, folder, port) == []
    finally:
        process.kill()


def until(is_so: Callable[[], Any], event: str, timeout_s: float = WAIT_S) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (value := is_so()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {event}"
        time.sleep(0.1)
    return value


def api_server(ui: subprocess.Popen[bytes]) -> int | None:
    """Return the process id of the API server among the children of `deepspark ui`."""
    for pid in Path(f"/proc/{ui.pid}/task/{ui.pid}/children").read_text().split():
        if re.search(rb"api[-_]server", Path(f"/proc/{pid}/cmdline").read_bytes()):
            return int(pid)
    return None


def outage(ui: subprocess.Popen[bytes], port: int) -> tuple[float, float]:
    """Kill the API server and hold its successor; return begin and end of the outage in epoch seconds."""
    killed = api_server(ui)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    began = time.time()
    new_pid = until(lambda: (pid := api_server(ui)) != killed and pid, "the API server is started again")
    os.kill(new_pid, signal.SIGSTOP)  # it does not listen yet
    while time.time() - began < OUTAGE_S:
        assert not read_health(port)
        time.sleep(1.0)
    os.kill(new_pid, signal.SIGCONT)
    until(lambda: read_health(port), "the API server answers again")
    return began, time.time()


def tasks_of(run: DagRun) -> dict[str, dict[str, Any]]:
    tasks = run.airflow.api().call("GET", f"{run.path}/taskInstances")["task_instances"]
    return {task["task_id"]: task for task in tasks}


def clock_of(run: DagRun) -> int:
    path = run.folder / "events.jsonl"
    return max((event.clock or 0 for event in read_events(path)), default=0) if path.exists() else 0


def test_no_task_loses_its_try_to_an_outage_of_the_api_server(
    ui: tuple[subprocess.Popen[bytes], AirflowInstance], example: SmallExample, capsys: pytest.CaptureFixture[str]
) -> None:
    process, airflow = ui
    # Enough lines to fill the pipe to Airflow, unread meanwhile.
    overrides = f"max_iter: {STEPS} test_interval: {STEPS} snapshot: {STEPS // 100} display: 50"
    run = airflow.trigger("deepspark_train", example.conf(overrides=overrides, n_workers=1))
    began, ended = outage(process, airflow.port)
    check = until(lambda: (task := tasks_of(run)["check"])["start_date"] and task, "task check has started")
    assert began < datetime.fromisoformat(check["start_date"]).timestamp() < ended, "the task did not start meanwhile"

    until(lambda: clock_of(run) > 0, "training")
    old_clock = clock_of(run)
    began, ended = outage(process, airflow.port)
    new_clock = clock_of(run)
    written = [event.time for event in read_events(run.folder / "events.jsonl") if event.kind == "snapshot"]
    late = [moment for moment in written if (began + ended) / 2 < moment < ended]
    with capsys.disabled():
        sys.stdout.write(
            f"outage of {ended - began:.1f} s: clock {old_clock} -> {new_clock}, later snapshots: {len(late)}\n"
        )
    assert old_clock < new_clock < STEPS, "the training stood still, or was over before the outage was"
    assert late, "the driver stood still"
    run.wait(timeout_s=WAIT_S + 4 * (STEPS - new_clock) * (ended - began) / (new_clock - old_clock))
    tried = {name: (task["state"], task["try_number"]) for name, task in tasks_of(run).items()}
    assert tried == dict.fromkeys(tried, ("success", 1))
    assert process.poll() is None
