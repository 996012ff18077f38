"""Every page about runs is rendered from runs of every task: lists, comparison, training, the run's dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.config.shared_options.task import TASK_NAMES, TaskName
from deepspark_ops.evaluate.evaluation_folder import Evaluated
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import StatusFile
from tests.integration.airflow.asking_person import text_of
from tests.reference.evaluations import evaluation, of_task, write_evaluation

pytestmark = pytest.mark.airflow

RUNS = ("run-a", "run-b")
ANSWERS = {"run-a": [[0.25], [1.0], [0.0], [0.75]], "run-b": [[0.75], [1.0], [0.5], [0.25]]}
TRUE = [[0.0], [1.0], [0.0], [1.0]]


def evaluated(task: TaskName, run: str) -> Evaluated:
    if task == "classification":
        return evaluation([round(row[0]) for row in ANSWERS[run]], [round(row[0]) for row in TRUE], weights=run)
    return of_task(ANSWERS[run], TRUE, task=task, weights=run)


def write_of_task(home: Path, task: TaskName) -> None:
    """Give two runs an evaluation, what check decided, a task's status and a dataset."""
    for run in RUNS:
        folder = home / "runs" / "deepspark_train" / run
        write_evaluation(folder / "evaluation", evaluated(task, run))
        (folder / "evaluation" / "report.html").write_text("<p>report</p>")
        config = json.loads((folder / "config.json").read_text()) | {"dataset": str(home / "datasets" / "pets-1f")}
        (folder / "config.json").write_text(json.dumps(config))
        noted = {"format_version": 2, "dataset": config["dataset"], "train_digest": "sha256:" + "5e" * 32, "shards": {}}
        RunPaths(folder).dataset.write_text(json.dumps(noted))
        status = StatusFile(folder, "evaluate")
        status.line(20, "scored 3/4 samples")
        status.end("finished")
        decided = {"format_version": 1, "dataset": None, "production": None, "model": "pets"}
        RunPaths(folder).decided.write_text(json.dumps({**decided, "started": "started by ada <b>"}))


@pytest.mark.parametrize("task", TASK_NAMES)
def test_every_page_about_runs_shows_what_a_task_is_judged_by(client: Any, task: TaskName) -> None:
    write_of_task(client.home, task)
    figure = evaluated(task, "run-a").metrics.main
    label = figure.label if figure is not None else "Top-1 accuracy"
    compare = "/runs/compare?" + "&".join(f"run=deepspark_train/{run}" for run in RUNS)
    addresses = ["/runs", compare, *(f"/runs/deepspark_train/{run}/training" for run in RUNS)]
    pages = {address: client.get(address) for address in addresses}
    assert {address: page.status_code for address, page in pages.items()} == dict.fromkeys(addresses, 200)
    shown = {address: text_of(page.text) for address, page in pages.items()}
    assert label in shown[compare]
    assert ("accuracy" if task == "classification" else label) in shown["/runs"]
    assert "pets-1f 5e5e5e5e" in shown["/runs"]
    training = pages[addresses[-1]].text
    assert "started by ada &lt;b&gt;" in training
    assert 'report">report</a>' in training
