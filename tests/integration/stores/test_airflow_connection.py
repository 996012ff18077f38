"""Tasks that read and write a real store by Airflow's connection; ``make test-object-stores`` brings the server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.operators import DeepSparkIngestOperator
from deepspark_ops.operators.provider.airflow_names import AirflowException
from deepspark_ops.operators.tasks import spark_stage
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.shards.manifest import read_manifest
from deepspark_ops.stores.store_path import data_path
from tests.paths import ROOT
from tests.reference.s3_server import SECRET, photos, put, reached_by_connection, s3_variables
from tests.unit.deepspark_ops.operators.operator_calls import context, execute

pytestmark = [pytest.mark.object_store, pytest.mark.airflow]

CLOSED = "http://127.0.0.1:9"
STAGE = """
import sys
from pathlib import Path
from deepspark_ops.config.ingest import IngestConfig
from tests.reference.ingest_in_process import ingest
ingest(IngestConfig.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("moto")
    with s3_variables(folder) as variables:
        for name, content in photos().items():
            put(f"photos/{name}", content, folder)
        yield variables


def ingested_by_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ingest from the store into the store: the task looks at the source, a process of its own writes the dataset."""

    def submit(hook: Any, application: str = "", **_: Any) -> None:
        command = [sys.executable, "-c", STAGE, hook._application_args[0], str(tmp_path / "work")]
        completed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL
        )
        assert completed.returncode == 0, completed.stderr
        hook.log.info("%s", completed.stdout + completed.stderr)

    monkeypatch.setattr(spark_stage.StageSubmitHook, "submit", submit)
    monkeypatch.setattr(spark_stage, "require_java", lambda: None)
    with DAG("d", schedule=None) as dag:
        task = DeepSparkIngestOperator(
            task_id="data", source="s3://bucket/photos", output="s3://bucket/sets/pets", test_fraction=0.5,
            places=Places(tmp_path, tmp_path / "home"),
        )  # fmt: skip
    return dict(execute(task, context(dag)))


def test_an_ingestion_from_the_store_into_the_store_needs_the_connection_alone(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with reached_by_connection(variables):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", CLOSED)  # of the host; the connection replaces the address
        output = ingested_by_task(tmp_path, monkeypatch)
        assert not set(variables) & set(os.environ)
        monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    assert output["dataset"] == "s3://bucket/sets/pets"
    splits = [read_manifest(data_path(f"s3://bucket/sets/pets/{split}")) for split in ("train", "test")]
    assert sum(split.n_samples for split in splits) == 60
    log = capsys.readouterr().out
    stages = next((tmp_path / "home" / "runs" / "d").iterdir()) / "stages"
    config = (stages / "ingest.json").read_text()
    assert IngestConfig.model_validate_json(config).source == data_path("s3://bucket/photos")
    assert SECRET not in log + config


def test_without_the_connection_the_host_decides(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reached_by_connection(variables):
        monkeypatch.delenv("AIRFLOW_CONN_AWS_DEFAULT")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", CLOSED)
        with pytest.raises(AirflowException, match=r"s3://bucket/\S+: the store cannot be reached: .*127\.0\.0\.1"):
            ingested_by_task(tmp_path, monkeypatch)
