"""OpenLineage's events of a run of ``deepspark_train`` by a running scheduler; ``make test-lineage`` runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.shards.manifest import split_digests
from tests.e2e.airflow_instance import AirflowInstance
from tests.e2e.small_example import SmallExample
from tests.paths import ROOT

pytestmark = [pytest.mark.lineage, pytest.mark.timeout(1800)]

PACKAGES = ROOT / ".venv" / "lineage"
"""Packages that `make test-lineage` installs."""
STAGES = ("ingest", "train", "evaluate", "export")


@pytest.fixture(scope="session")  # before the session's Airflow, whose processes inherit the variables
def event_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("lineage") / "events.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        transport = {"type": "file", "log_file_path": str(path), "append": True}
        patch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH")))))
        yield path


def dataset_names(datasets: list[dict[str, Any]]) -> list[str]:
    assert {dataset["namespace"] for dataset in datasets} <= {"file"}
    return [dataset["name"] for dataset in datasets]


def test_the_tasks_of_a_run_tell_openlineage_what_they_read_and_wrote(
    event_file: Path, airflow: AirflowInstance, example: SmallExample
) -> None:
    conf = example.conf(overrides="max_iter: 40", n_workers=1)
    run = airflow.trigger("deepspark_train", conf)
    run.wait()
    events = [json.loads(line) for line in event_file.read_text().splitlines()]
    of_stage = {
        (stage, event["eventType"]): event
        for event in events
        for stage in STAGES
        if event["job"]["name"] == f"deepspark_train.{stage}"
    }
    assert set(of_stage) == {(stage, kind) for stage in STAGES for kind in ("START", "COMPLETE")}
    ends = {stage: of_stage[stage, "COMPLETE"] for stage in STAGES}
    dataset = Path(json.loads((run.folder / "stages" / "decided.json").read_text())["dataset"])
    splits = [str(dataset / split) for split in ("train", "test")]
    assert dataset_names(of_stage["ingest", "START"]["inputs"]) == [str(example.folder / conf["source"])]
    assert dataset_names(ends["ingest"]["outputs"]) == splits
    versions = [split["facets"]["version"]["datasetVersion"] for split in ends["ingest"]["outputs"]]
    assert versions == list(split_digests(dataset).values())
    assert dataset_names(of_stage["train", "START"]["inputs"]) == dataset_names(ends["train"]["inputs"]) == splits
    (snapshot,) = dataset_names(ends["train"]["outputs"])
    assert Path(snapshot).parent == run.folder / "snapshots"
    assert dataset_names(ends["evaluate"]["inputs"]) == [*splits, snapshot]
    figures = ends["evaluate"]["inputs"][1]["inputFacets"]["dataQualityMetrics"]["columnMetrics"]
    metrics = json.loads((run.folder / "evaluation" / "metrics.json").read_text())
    assert figures["loss"]["min"] == pytest.approx(metrics["loss"])
    assert dataset_names(ends["export"]["outputs"]) == [str(run.folder / "bundle")]
