"""Operators in DAGs that are not ours: alone, twice, in a group, mapped, among functions of the user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.run_view.stage_status import read_statuses
from tests.paths import ROOT

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.long]


class OwnRuns:
    """Files of the runs of ``own_dags.py``."""

    def __init__(self, home: Path, runs: dict[str, Any], log: str) -> None:
        self._home = home
        self._runs = runs
        self._log = log

    def outputs(self, dag_id: str) -> dict[str, Any]:
        """Return what each task of a run returned, which has ended well."""
        errors = [line for line in self._log.splitlines() if "Exception" in line or "[error" in line]
        assert self._runs[dag_id]["state"] == "success", errors
        return dict(self._runs[dag_id]["outputs"])

    def started(self, dag_id: str, stage: str) -> list[dict[str, Any]]:
        """Return the configs that a stage's processes were started with."""
        return [started for started in self._runs[dag_id]["started"] if started["stage"] == stage]

    def folder(self, dag_id: str, output: Any) -> str:
        """Return the name of a run's folder without what is the DAG run's."""
        folder = Path(output["run_dir"])
        assert folder.parent == self._home / "runs" / dag_id
        return folder.name.partition("_00-00")[2] or folder.name.partition("-00-00")[2]


@pytest.fixture(scope="module")
def own_runs(tmp_path_factory: pytest.TempPathFactory) -> OwnRuns:
    folder = tmp_path_factory.mktemp("own")
    (folder / "dags").mkdir()
    shutil.copy(Path(__file__).with_name("own_dags.py"), folder / "dags")
    for name in ("s.prototxt", "t.prototxt"):
        (folder / name).touch()
    (folder / "list.txt").write_text("a.png 0\n")
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "DEEPSPARK_ROOT": str(folder),
        "DEEPSPARK_HOME": str(folder / "home"),
        "PYTHONPATH": str(ROOT),
    }
    result = folder / "result.json"
    completed = subprocess.run(
        [sys.executable, "-m", "tests.integration.airflow.own_dags", str(result)],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=400,
    )
    assert completed.returncode == 0, completed.stdout[-8000:]
    return OwnRuns(folder / "home", json.loads(result.read_text()), completed.stdout)


def test_an_operator_alone_starts_a_run_in_the_folder_of_the_dag_run(own_runs: OwnRuns) -> None:
    output = own_runs.outputs("alone")["fit"]
    assert own_runs.folder("alone", output) == ""
    assert set(output) == {"run_dir", "dataset", "production", "snapshot", "digest"}
    (config,) = own_runs.started("alone", "train")
    assert (config["n_workers"], config["strategy"], config["run_dir"]) == (3, "sync", output["run_dir"])


def test_a_run_notes_which_tasks_of_the_dag_it_is_of(own_runs: OwnRuns) -> None:
    for dag_id, task, expected in (("taskflow", "fit", ("fit", -1)), ("mapped", "fit[1]", ("fit", 1))):
        status = read_statuses(Path(own_runs.outputs(dag_id)[task]["run_dir"]))["train"]
        assert (status.task, status.map_index) == expected


def test_two_trainings_in_one_dag_have_a_run_each(own_runs: OwnRuns) -> None:
    outputs = own_runs.outputs("two")
    for name in ("small", "large"):
        assert own_runs.folder("two", outputs[f"check_{name}"]) == f"__check_{name}"
        assert outputs[f"train_{name}"]["run_dir"] == outputs[f"check_{name}"]["run_dir"]
        assert outputs[f"train_{name}"]["dataset"] == outputs[f"ingest_{name}"]["dataset"]
    trained = {Path(config["run_dir"]).name.rpartition("_")[2]: config for config in own_runs.started("two", "train")}
    assert {name: config["n_workers"] for name, config in trained.items()} == {"small": 1, "large": 3}


def test_a_pipeline_in_a_task_group_hands_its_run_on(own_runs: OwnRuns) -> None:
    outputs = own_runs.outputs("grouped")
    run_dir = outputs["pipeline.check"]["run_dir"]
    assert own_runs.folder("grouped", outputs["pipeline.check"]) == ""
    assert {outputs[f"pipeline.{stage}"]["run_dir"] for stage in ("train", "evaluate", "export")} == {run_dir}
    (predicted,) = own_runs.started("grouped", "predict")
    assert predicted["bundle"] == outputs["pipeline.export"]["bundle"]
    assert predicted["output"] == outputs["pipeline.predict"]["predictions"]


def test_a_training_is_mapped_over_solvers_and_its_evaluation_over_the_runs(own_runs: OwnRuns) -> None:
    outputs = own_runs.outputs("mapped")
    assert [own_runs.folder("mapped", outputs[f"fit[{at}]"]) for at in (0, 1)] == ["__fit_0", "__fit_1"]
    solvers = {config["run_dir"]: Path(config["solver"]).name for config in own_runs.started("mapped", "train")}
    assert [solvers[outputs[f"fit[{at}]"]["run_dir"]] for at in (0, 1)] == ["s.prototxt", "t.prototxt"]
    for at in (0, 1):
        assert outputs[f"score[{at}]"]["run_dir"] == outputs[f"fit[{at}]"]["run_dir"]


def test_functions_of_the_user_stand_before_and_after(own_runs: OwnRuns) -> None:
    outputs = own_runs.outputs("taskflow")
    (config,) = own_runs.started("taskflow", "train")
    assert (Path(config["solver"]).name, config["n_workers"]) == ("s.prototxt", 2)
    assert config["dataset"] == outputs["data"]["dataset"]
    assert own_runs.folder("taskflow", outputs["fit"]) == ""
    assert outputs["report"] == "of the stub"
    assert own_runs.started("taskflow", "evaluate")[0]["split"] == "train"


def test_an_ingestion_waits_deferred_for_another_task_that_writes_its_dataset(own_runs: OwnRuns) -> None:
    output = own_runs.outputs("waits")["data"]
    (config,) = own_runs.started("waits", "ingest")
    assert output["dataset"] == config["output"]
    assert Path(config["output"]).name == "held"
