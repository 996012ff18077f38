"""``deepspark demo``: run the example of the DAG deepspark_train in Airflow and report the results."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caffe_import.file_access.regular_file import open_regular, regular_text
from deepspark_ops.config.example_conf import example_conf
from deepspark_ops.local_airflow.api import AirflowFailed, Api, quoted
from deepspark_ops.local_airflow.folders import LocalFolders
from deepspark_ops.local_airflow.services import Report, free_port, running_port, running_services
from deepspark_ops.local_airflow.ui import interrupt_on_signals
from deepspark_ops.sizes import share_text

DAG = "deepspark_train"
TASKS = ("check", "ingest", "train", "evaluate", "export")
WAIT_FOR_DAG_S = 90.0
POLL_S = 0.5
_DETAIL = re.compile(r"^Spark-Submit cmd: |\bepoch clock=")
"""Lines of the task log that the demo leaves out."""
_GROUP_MARKS = ("::group::", "::endgroup::")
"""Marks that fold lines in Airflow's UI."""


@dataclass(frozen=True)
class DemoResult:
    """Results of the demo's run.

    Attributes:
        test_accuracy: Accuracy of the model on the test set.
        bundle: Folder of the exported model.
        report: The page of the evaluation.
        took_s: Seconds from the start to the result.
        ui_command: Command that starts Airflow's UI.
    """

    test_accuracy: float
    bundle: Path
    report: Path
    took_s: float
    ui_command: str

    def summary(self) -> str:
        """Return the lines for the user; the last line is for scripts."""
        return (
            f"demo: done in {self.took_s:.0f} s\n\n"
            f"  test accuracy  {share_text(self.test_accuracy)}\n"
            f"  model bundle   {self.bundle}\n"
            f"  report         {self.report}\n"
            f"  Airflow's UI   {self.ui_command}   (prints address, user and password; this run and its logs are"
            " there)\n\n"
            f"demo: test_accuracy={self.test_accuracy:.3f} bundle={self.bundle}"
        )


def run_demo(folders: LocalFolders, report: Report) -> DemoResult:
    """Run the DAG in the running Airflow with these folders, else in a temporary Airflow.

    Raises:
        AirflowFailed: Airflow could not be started, or the run failed; the message names the folder of the logs.
    """

    def progress(text: str) -> None:
        report(f"demo: {text}")

    interrupt_on_signals()
    started = time.monotonic()
    with _airflow(folders, progress) as api:
        run_id = start_example(api, folders)
        progress(f"started {DAG}, run {run_id}")
        logs = folders.logs / f"dag_id={DAG}" / f"run_id={run_id}"
        state = follow(api, run_id, TaskLogs(logs, report), progress)
        if state != "success":
            msg = f"the run ended as {state}; logs: {logs}"
            raise AirflowFailed(msg)
        return _result(api, run_id, time.monotonic() - started, folders.ui_command)


@contextmanager
def _airflow(folders: LocalFolders, progress: Report) -> Iterator[Api]:
    port = running_port(folders)
    if port is not None:
        progress(f"using the Airflow that runs on port {port}")
        yield Api(port, folders.passwords)
        return
    port = free_port()
    with running_services(folders, port, progress):
        yield Api(port, folders.passwords)


def start_example(api: Api, folders: LocalFolders) -> str:
    """Start a run of the example and return the run's id.

    Raises:
        AirflowFailed: The DAG does not appear, or Airflow refuses the run.
    """
    deadline = time.monotonic() + WAIT_FOR_DAG_S
    while DAG not in {dag["dag_id"] for dag in api.call("GET", "/dags")["dags"]}:
        if errors := api.call("GET", "/importErrors")["import_errors"]:
            msg = f"{errors[0]['filename']} does not load:\n{errors[0]['stack_trace']}"
            raise AirflowFailed(msg)
        if time.monotonic() > deadline:
            msg = f"{DAG} did not appear in {WAIT_FOR_DAG_S:.0f} s; see {folders.logs}/services/dag-processor.log"
            raise AirflowFailed(msg)
        time.sleep(POLL_S)
    api.call("PATCH", f"/dags/{DAG}", {"is_paused": False})
    body = {"logical_date": None, "conf": example_conf(DAG, folders.root)}
    return str(api.call("POST", f"/dags/{DAG}/dagRuns", body)["dag_run_id"])


def follow(api: Api, run_id: str, logs: TaskLogs, progress: Report) -> str:
    """Report the run's progress and return its final state."""
    path = f"/dags/{DAG}/dagRuns/{quoted(run_id)}"
    states: dict[str, str | None] = {}
    while True:
        run = api.call("GET", path)
        tasks = api.call("GET", f"{path}/taskInstances")["task_instances"]
        logs.report_new()
        for task in sorted(tasks, key=lambda task: TASKS.index(task["task_id"])):
            name, state = task["task_id"], task["state"]
            if state != states.get(name) and state in {"running", "success", "failed", "up_for_retry"}:
                took = f" in {task['duration']:.1f} s" if state != "running" and task.get("duration") else ""
                progress(f"stage {name}: {state}{took}")
            states[name] = state
        if run["state"] in {"success", "failed"}:
            if run.get("duration"):
                in_tasks_s = sum(task.get("duration") or 0.0 for task in tasks)
                progress(f"run: {run['state']} in {run['duration']:.1f} s, its tasks {in_tasks_s:.1f} s")
            return str(run["state"])
        time.sleep(POLL_S)


def _result(api: Api, run_id: str, took_s: float, ui_command: str) -> DemoResult:
    """Return the result of a finished run, from the tasks' XComs."""

    def passed_on(task: str) -> dict[str, str]:
        path = f"/dags/{DAG}/dagRuns/{quoted(run_id)}/taskInstances/{task}/xcomEntries/return_value?deserialize=true"
        value = api.call("GET", path)["value"]
        return dict(json.loads(value) if isinstance(value, str) else value)

    metrics = Path(passed_on("evaluate")["metrics"])
    return DemoResult(
        test_accuracy=float(json.loads(regular_text(metrics))["top1"]),
        bundle=Path(passed_on("export")["bundle"]),
        report=metrics.with_name("report.html"),
        took_s=took_s,
        ui_command=ui_command,
    )


class TaskLogs:
    """Follows the task logs of a run and reports the stages' lines as they arrive."""

    def __init__(self, folder: Path, report: Report) -> None:
        """Follow the logs from the beginning; ``folder`` holds one folder per task."""
        self._folder = folder
        self._report = report
        self._read: dict[Path, int] = {}

    def report_new(self) -> None:
        """Report the lines since the last call; an incomplete line waits for the next call."""
        for task in TASKS:
            for log in sorted((self._folder / f"task_id={task}").glob("attempt=*.log")):
                with open_regular(log) as handle:
                    handle.seek(self._read.get(log, 0))
                    text = handle.read()
                complete_lines = text[: text.rfind(b"\n") + 1]
                self._read[log] = self._read.get(log, 0) + len(complete_lines)
                for line in complete_lines.splitlines():
                    self._report_line(task, line)

    def _report_line(self, task: str, line: bytes) -> None:
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            return
        text = str(entry.get("event", ""))
        is_ours = "deepspark_ops" in str(entry.get("logger", "")) and not _DETAIL.search(text)
        if text.startswith(_GROUP_MARKS):
            return
        if is_ours or entry.get("level") in {"error", "critical"}:
            self._report(f"  {task:<8} {text}")
