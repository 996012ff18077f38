"""The notifier of a DAG's callbacks: one text with name, state, verdict, figures, error and address of the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseNotifier, BaseOperator

from deepspark_ops.operators.notices import send
from deepspark_ops.operators.notices.notifier import DeepSparkNotifier
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_run import TaskEnd
from deepspark_ops.run_label.label import RunLabel, write_label
from deepspark_ops.run_paths import RunPaths
from tests.reference.evaluations import answers_with, evaluation, write_evaluation
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, stage, started

pytestmark = pytest.mark.airflow

SITE = "http://airflow.example.com"
LABELS = [0, 1] * 50


class TextNotifier(BaseNotifier):
    """Keeps the rendered text, as a notifier of mails or chats would send it."""

    template_fields = ("text",)

    def __init__(self, text: str, sent: list[str]) -> None:
        super().__init__()
        self.text = text
        self.sent = sent

    def notify(self, context: Any) -> None:
        self.sent.append(self.text)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(send, "site_url", lambda: SITE)
    monkeypatch.setattr(send, "installed_places", lambda: Places(tmp_path, tmp_path))
    return tmp_path


@pytest.fixture
def write(home: Path) -> Callable[..., Path]:
    def write_run(name: str) -> Path:
        folder = home / "runs" / "d" / name
        folder.mkdir(parents=True)
        events = [started(0, 1000.0, net="LeNet"), *RUN[1:], stage("finished", 1000, 1100.0, images_per_s=812.5)]
        (folder / "events.jsonl").write_bytes(lines(events))
        (folder / "config.json").write_text('{"solver": "s.prototxt"}')
        return folder

    return write_run


def ended(state: str, **more: Any) -> dict[str, Any]:
    return {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", state=state), **more}


def test_a_finished_run_has_name_verdict_figures_and_address_in_the_text(write: Callable[..., Path]) -> None:
    folder = write("r")
    write_label(folder, RunLabel(name="baseline of June"))
    write_evaluation(RunPaths(folder).evaluation, evaluation(answers_with(LABELS, [3, 4, 5]), LABELS))
    RunPaths(folder).decision.write_text('{"promotes": false}')
    sent: list[str] = []
    context = ended("success")
    DeepSparkNotifier(TextNotifier("{{ deepspark.text }}", sent))(context)
    (text,) = sent
    assert text.startswith("d, run r: finished\n\nbaseline of June (finished, kept production)\n")
    assert "\naccuracy (evaluation): 97.0 %\n" in text
    assert text.endswith(f"\n\n{SITE}/deepspark/runs/d/r/report")
    assert "deepspark" not in context


def test_a_failed_task_has_the_errors_first_line_and_the_log_is_the_default_target(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = TaskEnd("\nlenet.prototxt:3: unknown field\nallowed: a, b", 2)
    DeepSparkNotifier()(ended("failed", exception=error))
    text = f"d, run r: failed\nlenet.prototxt:3: unknown field\n\n{SITE}/deepspark/runs/d/r/training"
    assert text in capsys.readouterr().out  # where Airflow logs outside a task


def test_the_end_of_a_dag_run_names_every_training_of_the_run(write: Callable[..., Path], home: Path) -> None:
    write("r__train_a")
    failed = write("r__train_b")
    write("r2")
    RunPaths(failed).stages.mkdir()
    note = {"format_version": 1, "task": "evaluate", "status": "failed", "message": "no such file\nx", "time": 5.0}
    (RunPaths(failed).stages / "evaluate.status.json").write_text(json.dumps(note))
    notices: list[Any] = []
    # A DAG's callback, in a DAG without a last task.
    minimal = {"dag": SimpleNamespace(dag_id="d"), "run_id": "r", "reason": "task_failure"}
    notifier = DeepSparkNotifier(lambda context: notices.append(context["deepspark"]))
    notifier.notify(minimal)
    notifier.notify({**minimal, "reason": "success"})
    assert [notice.event for notice in notices] == ["failed", "finished"]
    assert [folder.name for folder in notices[0].run_folders] == ["r__train_a", "r__train_b"]
    assert "DAG run: task_failure" in notices[0].text
    assert notices[0].text.count("LeNet, ") == 2


def test_a_damaged_run_and_a_comparison_of_many_keep_a_text(write: Callable[..., Path]) -> None:
    for number in range(12):
        write(f"r__trial_{number:02d}")
    notices: list[Any] = []
    damaged = write("r")
    (damaged / "events.jsonl").unlink()
    (damaged / "events.jsonl").mkdir()
    DeepSparkNotifier(lambda context: notices.append(context["deepspark"])).notify(ended("success"))
    assert f"{damaged}: " in notices[0].text
    assert "and 3 more trainings" in notices[0].text


def test_a_dag_and_its_tasks_take_the_notifier_as_a_callback() -> None:
    notifier = DeepSparkNotifier()
    with DAG("d", schedule=None, on_success_callback=notifier, default_args={"on_failure_callback": notifier}) as dag:
        task = BaseOperator(task_id="t")
    assert dag.has_on_success_callback
    assert task.on_failure_callback in (notifier, [notifier])
