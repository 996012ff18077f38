"""Runs shared by several tests, made once in a session by the first test, for all processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.airflow_instance import AirflowInstance, DagRun
from tests.e2e.small_example import FORMATS, SmallExample
from tests.e2e.small_tasks import write_regression, write_segmentation

DAG = "deepspark_train"


def run_from_source(airflow: AirflowInstance) -> DagRun:
    """Return the run of the net ``small`` over 200 minibatches by two workers; its source was ingested."""

    def make() -> str:
        return _finished(airflow, SmallExample(airflow.base / "from_source").write().conf(formats=FORMATS))

    return DagRun(airflow, DAG, airflow.once("run_from_source", make))


def run_on_own_data(airflow: AirflowInstance) -> DagRun:
    """Return the run of the net ``own_data`` over 40 minibatches by one worker; the net names its shards.

    The shards are the first shard of each split of ``run_from_source``.
    """

    def make() -> str:
        example = SmallExample(airflow.base / "own_data", name="own_data").write()
        dataset = dataset_of(run_from_source(airflow))
        for split in ("train", "test"):
            example.replace_source(split, min((dataset / split).glob("*.lmdb")))
        conf = example.conf(source=None, overrides="max_iter: 40", n_workers=1, devices="cpu", formats=FORMATS)
        return _finished(airflow, conf)

    return DagRun(airflow, DAG, airflow.once("run_on_own_data", make))


def run_of_regression(airflow: AirflowInstance) -> DagRun:
    """Return the run of a net that predicts a number of a table's rows; the source was ingested."""

    def make() -> str:
        return _finished(airflow, write_regression(airflow.base / "regression"))

    return DagRun(airflow, DAG, airflow.once("run_of_regression", make))


def run_of_segmentation(airflow: AirflowInstance) -> DagRun:
    """Return the run of a net with a class for each pixel; the net names its files."""

    def make() -> str:
        return _finished(airflow, write_segmentation(airflow.base / "segmentation"))

    return DagRun(airflow, DAG, airflow.once("run_of_segmentation", make))


def promoted_model(airflow: AirflowInstance, run: DagRun | None = None, name: str = "promoted") -> str:
    """Return the name of a model in production whose only version is of a run, by default ``run_from_source``."""

    def make() -> str:
        bundle = (run or run_from_source(airflow)).folder
        options = ("--models", str(airflow.home / "models"), "--reason", "the first")
        completed = airflow.command("models", "promote", name, str(bundle), *options)
        assert completed.returncode == 0, completed.stdout
        return name

    return airflow.once(f"model_{name}", make)


def dataset_of(run: DagRun) -> Path:
    """Return the folder of the dataset that a run trained on."""
    return Path(json.loads((run.folder / "config.json").read_text())["dataset"])


def _finished(airflow: AirflowInstance, conf: dict[str, Any]) -> str:
    run = airflow.trigger(DAG, conf)
    run.wait()
    return run.run_id
