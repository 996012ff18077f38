"""Lines that the demo prints from task logs, and the last line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepspark_ops.config.example_conf import example_conf
from deepspark_ops.local_airflow.demo import DAG, DemoResult, TaskLogs, follow, start_example
from deepspark_ops.local_airflow.folders import LocalFolders
from tests.paths import ROOT


def line(event: str, logger: str = "deepspark_ops.train", level: str = "info") -> str:
    return json.dumps({"event": event, "logger": logger, "level": level}) + "\n"


def test_the_stages_own_lines_are_shown_once_and_whole(tmp_path: Path) -> None:
    shown: list[str] = []
    logs = TaskLogs(tmp_path, shown.append)
    logs.report_new()
    log = tmp_path / "task_id=train" / "attempt=1.log"
    log.parent.mkdir()
    log.write_text(
        line("::group::workers")
        + line("loss clock=1")
        + line("::endgroup::")
        + line("DAG bundles loaded", "airflow")
        + line("epoch clock=9")
        + "no JSON\n"
        + '{"eve'
    )
    logs.report_new()
    assert shown == ["  train    loss clock=1"]
    with log.open("a") as handle:
        handle.write('nt": "broke", "logger": "airflow", "level": "error"}\n')
    logs.report_new()
    logs.report_new()
    assert shown == ["  train    loss clock=1", "  train    broke"]


def test_the_last_line_is_for_scripts(tmp_path: Path) -> None:
    summary = DemoResult(0.97494, tmp_path / "bundle", tmp_path / "report.html", 42.4, "make ui").summary()
    assert summary.splitlines()[-1] == f"demo: test_accuracy=0.975 bundle={tmp_path / 'bundle'}"


def test_the_command_for_the_ui_works_where_the_demo_ran(tmp_path: Path) -> None:
    clone, elsewhere = LocalFolders.find({}, tmp_path, ROOT), LocalFolders.find({}, tmp_path, tmp_path / "none")
    assert (clone.ui_command, elsewhere.ui_command) == ("make ui", "deepspark ui")
    assert re.search(r"^ui:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for folders in (clone, elsewhere):
        result = DemoResult(0.9, tmp_path / "bundle", tmp_path / "report.html", 42.4, folders.ui_command)
        assert f"Airflow's UI   {folders.ui_command}   (prints" in result.summary()


@pytest.mark.parametrize("is_checkout", [True, False])
def test_the_demo_triggers_the_example_itself_and_relies_on_no_default(tmp_path: Path, is_checkout: bool) -> None:
    folders = LocalFolders.find({"DEEPSPARK_HOME": str(tmp_path)}, tmp_path, ROOT if is_checkout else tmp_path / "none")
    calls: list[tuple[str, str, Any]] = []

    def call(method: str, path: str, body: Any = None) -> Any:
        calls.append((method, path, body))
        return {"/dags": {"dags": [{"dag_id": DAG}]}}.get(path, {"dag_run_id": "manual"})

    assert start_example(SimpleNamespace(call=call), folders) == "manual"  # type: ignore[arg-type]
    method, path, body = calls[-1]
    assert (method, path) == ("POST", f"/dags/{DAG}/dagRuns")
    assert body["conf"] == example_conf(DAG, folders.root)
    assert (folders.root / body["conf"]["solver"]).is_file()


def test_the_demo_reports_the_stages_and_the_seconds_of_the_run(tmp_path: Path) -> None:
    task = {"task_id": "check", "state": "success", "duration": 2.5}
    answers = iter(
        [
            {"state": "running", "duration": None},
            {"task_instances": [{**task, "state": "running", "duration": None}]},
            {"state": "success", "duration": 4.0},
            {"task_instances": [task]},
        ]
    )
    api: Any = SimpleNamespace(call=lambda *_: next(answers))
    shown: list[str] = []
    assert follow(api, "manual", TaskLogs(tmp_path, shown.append), shown.append) == "success"
    assert shown == ["stage check: running", "stage check: success in 2.5 s", "run: success in 4.0 s, its tasks 2.5 s"]
