"""DAG runs whose source is in an object store; ``make test-object-stores`` runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspark_ops.shards.manifest import read_manifest
from tests.e2e.airflow_instance import AirflowInstance
from tests.reference.photo_net import write_photo_solver
from tests.reference.s3_server import SECRET, photos, put, reached_by_connection, s3_variables

pytestmark = [pytest.mark.object_store, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")  # before the session's Airflow, whose tasks inherit the connection
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3_variables(tmp_path_factory.mktemp("moto")) as variables, reached_by_connection(variables):
        yield variables


def put_all(files: dict[str, bytes], folder: Path, variables: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        for name, content in files.items():
            put(name, content, folder)


def digest_of(dataset: str) -> str:
    return read_manifest(Path(dataset) / "train").source.sha256


def test_a_net_is_trained_from_a_folder_of_a_bucket_and_a_replaced_object_is_new_data(
    store: dict[str, str], airflow: AirflowInstance, tmp_path: Path
) -> None:
    put_all({f"photos/{name}": content for name, content in photos().items()}, tmp_path, store)
    solver = write_photo_solver(tmp_path, max_iter=20)
    conf = {"solver": str(solver), "source": "s3://bucket/photos", "n_workers": 1}
    first = airflow.trigger("deepspark_train", conf)
    first.wait()
    assert set(first.task_states().values()) == {"success"}
    for task in first.task_states():
        assert SECRET not in first.log_text(task)
    dataset = json.loads((first.folder / "stages" / "train.json").read_text())["dataset"]
    put_all({"photos/cat/1.png": photos()["dog/0.png"]}, tmp_path, store)
    second = airflow.trigger("deepspark_train", conf)
    second.leave_out("train")
    second.wait()
    decided = json.loads((second.folder / "stages" / "decided.json").read_text())
    assert digest_of(decided["dataset"]) != digest_of(dataset)
