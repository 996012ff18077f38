"""DAG runs whose source is in an object store; ``make test-object-stores`` runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspark_ops.shards.manifest import read_manifest
from tests.e2e.airflow_instance import AirflowInstance
from tests.reference.photo_net import write_photo_solver
from tests.reference.s3_server import SECRET, photos, put, s3_variables

pytestmark = [pytest.mark.object_store, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")  # before the session's Airflow, whose tasks inherit the variables
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with s3_variables(tmp_path_factory.mktemp("moto")):
        yield


def digest_of(dataset: str) -> str:
    return read_manifest(Path(dataset) / "train").source.sha256


def test_a_net_is_trained_from_a_folder_of_a_bucket_and_a_replaced_object_is_new_data(
    store: None, airflow: AirflowInstance, tmp_path: Path
) -> None:
    for name, content in photos().items():
        put(f"photos/{name}", content, tmp_path)
    solver = write_photo_solver(tmp_path, max_iter=20)
    conf = {"solver": str(solver), "source": "s3://bucket/photos", "n_workers": 1}
    first = airflow.trigger("deepspark_train", conf)
    first.wait()
    assert set(first.task_states().values()) == {"success"}
    assert SECRET not in first.log_text("ingest")
    dataset = json.loads((first.folder / "stages" / "train.json").read_text())["dataset"]
    put("photos/cat/1.png", photos()["dog/0.png"], tmp_path)
    second = airflow.trigger("deepspark_train", conf)
    second.leave_out("train")
    second.wait()
    decided = json.loads((second.folder / "stages" / "decided.json").read_text())
    assert digest_of(decided["dataset"]) != digest_of(dataset)
