"""``make demo``: run the DAG deepspark_train on the digits through Airflow and say what came out."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_services import ROOT, Api, Services, ServicesFailed, airflow_home, free_port, quoted, running_port

DAG = "deepspark_train"
TASKS = ("check", "ingest", "train", "evaluate", "export")
WAIT_FOR_DAG_S = 90.0
POLL_S = 0.5
_DETAIL = re.compile(r"^Spark-Submit cmd: |\bepoch clock=")
"""Lines of the task log that a first look does not need."""


def say(text: str) -> None:
    """Print a progress line at once."""
    print(f"demo: {text}", flush=True)


class TaskLogs:
    """Follows the task logs of one run and prints the stages' own lines as they arrive."""

    def __init__(self, run_id: str) -> None:
        """Follow the run's logs from their beginning."""
        self._folder = airflow_home() / "logs" / f"dag_id={DAG}" / f"run_id={run_id}"
        self._read: dict[Path, int] = {}

    def print_new(self) -> None:
        """Print what was written since the last call; a line still being written waits for the next."""
        for task in TASKS:
            for log in sorted((self._folder / f"task_id={task}").glob("attempt=*.log")):
                with log.open("rb") as handle:
                    handle.seek(self._read.get(log, 0))
                    text = handle.read()
                whole = text[: text.rfind(b"\n") + 1]
                self._read[log] = self._read.get(log, 0) + len(whole)
                for line in whole.splitlines():
                    self._print(task, line)

    @staticmethod
    def _print(task: str, line: bytes) -> None:
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            return
        text = str(entry.get("event", ""))
        is_ours = "deepspark_ops" in str(entry.get("logger", "")) and not _DETAIL.search(text)
        if is_ours or entry.get("level") in {"error", "critical"}:
            print(f"  {task:<8} {text}", flush=True)


@contextmanager
def airflow() -> Iterator[Api]:
    """Yield the API of this clone's Airflow: the one that ``make ui`` runs, else one of our own for the while."""
    port = running_port()
    if port is not None:
        say(f"using the Airflow that runs on port {port}")
        yield Api(port)
        return
    port = free_port()
    with Services(port, say):
        yield Api(port)


def trigger(api: Api) -> str:
    """Start a run and return its id.

    Raises:
        ServicesFailed: The DAG does not appear, or the run is refused.
    """
    deadline = time.monotonic() + WAIT_FOR_DAG_S
    while True:
        errors = api.call("GET", "/importErrors")["import_errors"]
        if errors:
            msg = f"{errors[0]['filename']} does not load:\n{errors[0]['stack_trace']}"
            raise ServicesFailed(msg)
        known = {dag["dag_id"] for dag in api.call("GET", "/dags")["dags"]}
        if DAG in known:
            break
        if time.monotonic() > deadline:
            msg = (
                f"{DAG} did not appear in {WAIT_FOR_DAG_S:.0f} s; see {airflow_home()}/logs/services/dag-processor.log"
            )
            raise ServicesFailed(msg)
        time.sleep(POLL_S)
    api.call("PATCH", f"/dags/{DAG}", {"is_paused": False})
    return str(api.call("POST", f"/dags/{DAG}/dagRuns", {"logical_date": None, "conf": {}})["dag_run_id"])


def follow(api: Api, run_id: str) -> str:
    """Print the run's progress and return its final state."""
    logs = TaskLogs(run_id)
    states: dict[str, str | None] = {}
    while True:
        run = api.call("GET", f"/dags/{DAG}/dagRuns/{quoted(run_id)}")
        tasks = api.call("GET", f"/dags/{DAG}/dagRuns/{quoted(run_id)}/taskInstances")["task_instances"]
        logs.print_new()
        for task in sorted(tasks, key=lambda task: TASKS.index(task["task_id"])):
            name, state = task["task_id"], task["state"]
            if state != states.get(name) and state in {"running", "success", "failed", "up_for_retry"}:
                took = f" in {task['duration']:.1f} s" if state != "running" and task.get("duration") else ""
                say(f"stage {name}: {state}{took}")
            states[name] = state
        if run["state"] in {"success", "failed"}:
            return str(run["state"])
        time.sleep(POLL_S)


def result(api: Api, run_id: str) -> tuple[float, Path]:
    """Return test accuracy and bundle of a finished run, from what its tasks passed on."""

    def passed_on(task: str) -> dict[str, str]:
        path = f"/dags/{DAG}/dagRuns/{quoted(run_id)}/taskInstances/{task}/xcomEntries/return_value?deserialize=true"
        value = api.call("GET", path)["value"]
        return json.loads(value) if isinstance(value, str) else value

    metrics = json.loads(Path(passed_on("evaluate")["metrics"]).read_text())
    return float(metrics["top1"]), Path(passed_on("export")["bundle"])


def main() -> int:
    """Run the demo; exit code 1 with the reason if it fails."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.chdir(ROOT)
    started = time.monotonic()
    try:
        with airflow() as api:
            run_id = trigger(api)
            say(f"started {DAG}, run {run_id}")
            state = follow(api, run_id)
            if state != "success":
                say(f"the run ended as {state}; logs: {airflow_home()}/logs/dag_id={DAG}/run_id={run_id}")
                return 1
            accuracy, bundle = result(api, run_id)
    except ServicesFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("ended")
        return 1
    say(f"done in {time.monotonic() - started:.0f} s")
    print(
        f"\n  test accuracy  {accuracy:.1%}\n  model bundle   {bundle}\n"
        f"  report         {bundle.parent / 'evaluation' / 'report.html'}\n"
        "  Airflow's UI   make ui   (prints address, user and password; this run and its logs are there)\n"
    )
    print(f"demo: test_accuracy={accuracy:.3f} bundle={bundle}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
