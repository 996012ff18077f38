"""DAGs without training, as Airflow runs the DAGs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.prototxt import parse_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.export.manifest import read_manifest
from tests.e2e.airflow_instance import AirflowInstance
from tests.e2e.small_example import FORMATS

pytestmark = [pytest.mark.airflow, pytest.mark.tf, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

DEPLOY = """
name: "elsewhere" input: "data" input_shape { dim: 1 dim: 1 dim: 8 dim: 8 }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


def test_a_net_and_weights_go_in_and_a_checked_bundle_comes_out(airflow: AirflowInstance, tmp_path: Path) -> None:
    net = build_net_spec(parse_net(DEPLOY), phase="TEST")
    (tmp_path / "deploy.prototxt").write_text(DEPLOY)
    weights = tmp_path / "w.caffemodel"
    write_caffemodel(weights, net, initial_vector(net, 3))
    conf = {"net": str(tmp_path / "deploy.prototxt"), "weights": str(weights), "scale": 0.0625, "formats": FORMATS}
    run = airflow.trigger("deepspark_convert", conf)
    run.wait()
    manifest = read_manifest(run.folder / "bundle")
    assert (manifest.net, manifest.inputs[0].preprocessing) == ("elsewhere", ("multiply by 0.0625",))
    assert json.loads((run.folder / "stages" / "convert.status.json").read_text())["status"] == "finished"


def test_old_runs_are_listed_first_and_removed_when_that_is_asked(airflow: AirflowInstance) -> None:
    old = airflow.home / "runs" / "deepspark_train" / "old"
    old.mkdir(parents=True)
    (old / "config.json").write_text("{}")
    for path in (old / "config.json", old):
        os.utime(path, (0, 0))  # the runs of other tests are younger than 30 days
    for remove in (False, True):
        run = airflow.trigger("deepspark_clean", {"remove": remove, "keep_runs": 0})
        run.wait()
        assert old.exists() is not remove
        entries = json.loads((run.folder / "clean.json").read_text())["entries"]
        going = [(entry["path"], entry["removed"]) for entry in entries if entry["goes"]]
        assert going == [(str(old), remove)]
