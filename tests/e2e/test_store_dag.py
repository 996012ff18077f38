"""DAG runs whose source is in an object store; ``make test-object-stores`` runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspark_ops.shards.manifest import read_manifest
from tests.e2e.airflow_instance import AirflowInstance
from tests.reference.s3_server import SECRET, photos, put, s3_variables

pytestmark = [pytest.mark.object_store, pytest.mark.timeout(1800)]

NET = """
name: "two_classes"
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  data_param { source: "x" batch_size: 10 backend: LMDB } transform_param { scale: 0.004 } }
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "x" batch_size: 9 backend: LMDB } transform_param { scale: 0.004 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 20 display: 20 random_seed: 1'


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
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    conf = {"solver": str(tmp_path / "solver.prototxt"), "source": "s3://bucket/photos", "n_workers": 1}
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
