"""What the demo shows of task logs, and its last line."""

from __future__ import annotations

import json
from pathlib import Path

from deepspark_ops.local_airflow.demo import DemoResult, TaskLogs


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
    summary = DemoResult(0.97494, tmp_path / "bundle", tmp_path / "report.html", 42.4).summary()
    assert summary.splitlines()[-1] == f"demo: test_accuracy=0.975 bundle={tmp_path / 'bundle'}"
