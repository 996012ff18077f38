"""DAGs that train nothing, each in one process as ``airflow dags test`` runs it."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.prototxt import parse_net
from caffe_import.net.fillers import initial_vector
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.export.manifest import read_manifest
from tests.e2e.conftest import Sandbox

pytestmark = [pytest.mark.airflow, pytest.mark.tf, pytest.mark.slow]

DEPLOY = """
name: "elsewhere" input: "data" input_shape { dim: 1 dim: 1 dim: 8 dim: 8 }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


def test_a_net_and_weights_go_in_and_a_checked_bundle_comes_out(sandbox: Sandbox) -> None:
    net = build_net_spec(parse_net(DEPLOY), phase="TEST")
    (sandbox.folder / "deploy.prototxt").write_text(DEPLOY)
    weights = sandbox.folder / "w.caffemodel"
    write_caffemodel(weights, net, initial_vector(net, 3))
    conf = {"net": str(sandbox.folder / "deploy.prototxt"), "weights": str(weights), "scale": 0.0625}
    done = sandbox.airflow("dags", "test", "deepspark_convert", "-c", json.dumps(conf))
    assert done.returncode == 0, done.stdout[-8000:]
    (run,) = (sandbox.home / "runs" / "deepspark_convert").iterdir()
    manifest = read_manifest(run / "bundle")
    assert (manifest.net, manifest.inputs[0].preprocessing) == ("elsewhere", ("multiply by 0.0625",))
    assert json.loads((run / "stages" / "convert.status.json").read_text())["status"] == "finished"


def test_old_runs_are_listed_first_and_removed_when_that_is_asked(sandbox: Sandbox) -> None:
    old = sandbox.home / "runs" / "deepspark_train" / "old"
    old.mkdir(parents=True)
    (old / "config.json").write_text("{}")
    for path in (old / "config.json", old):
        os.utime(path, (0, 0))
    reports = {}
    for remove in (False, True):
        conf = json.dumps({"remove": remove, "keep_runs": 0})
        done = sandbox.airflow("dags", "test", "deepspark_clean", "-c", conf)
        assert done.returncode == 0, done.stdout[-8000:]
        assert old.exists() is not remove
        (report,) = (sandbox.home / "runs" / "deepspark_clean").glob("*/clean.json")
        reports[remove] = json.loads(report.read_text())["entries"]
        shutil.rmtree(report.parent)
    for remove, entries in reports.items():
        going = [(entry["path"], entry["removed"]) for entry in entries if entry["goes"]]
        assert going == [(str(old), remove)]
