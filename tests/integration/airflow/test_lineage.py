"""OpenLineage's events of a DAG run, from the file transport beside Airflow's own provider."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.reference.example_sources import EXAMPLE_SOURCES

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.lineage]

PACKAGES = ROOT / ".venv" / "lineage"
"""What `make test-lineage` installs."""


def test_an_ingestion_sends_source_and_splits_to_openlineage(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "pets").mkdir()
    shutil.copy(Path(__file__).with_name("lineage_dag.py"), tmp_path / "dags")
    EXAMPLE_SOURCES["class_folders"](tmp_path / "pets")
    events = tmp_path / "events.jsonl"
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(events), "append": True}),
        "DEEPSPARK_ROOT": str(tmp_path),
        "DEEPSPARK_HOME": str(tmp_path / "home"),
        "PYTHONPATH": f"{ROOT}:{PACKAGES}",
    }
    for command in (["-m", "airflow", "db", "migrate"], ["-m", "tests.integration.airflow.lineage_dag"]):
        completed = subprocess.run(
            [sys.executable, *command], env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=400,
        )  # fmt: skip
        assert completed.returncode == 0, completed.stdout[-8000:]
    sent_events = [json.loads(line) for line in events.read_text().splitlines()]
    of_task = {event["eventType"]: event for event in sent_events if event["job"]["name"] == "lineage.data"}
    source = {"namespace": "file", "name": str(tmp_path / "pets")}
    for event in (of_task["START"], of_task["COMPLETE"]):
        assert [{name: dataset[name] for name in source} for dataset in event["inputs"]] == [source]
    train, test = of_task["COMPLETE"]["outputs"]
    (dataset,) = (tmp_path / "home" / "datasets").glob("pets-*")
    assert (train["namespace"], train["name"]) == ("file", str(dataset / "train"))
    counts = [output["outputFacets"]["outputStatistics"]["rowCount"] for output in (train, test)]
    assert sum(counts) == 6
    assert train["facets"]["version"]["datasetVersion"].startswith("sha256:")
    fields = train["facets"]["schema"]["fields"]
    assert [(field["name"], field["type"]) for field in fields] == [("data", "uint8[3, 8, 8]"), ("label", "int")]
