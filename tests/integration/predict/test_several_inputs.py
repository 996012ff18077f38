"""A bundle that takes two inputs: rows of a table, and instances of the server, give what numpy gives."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.config.commands.predict import FeaturesConfig, PredictConfig
from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.export.convert.__main__ import main as convert
from deepspark_ops.predict.answers import write_answers
from deepspark_ops.serve.request import samples_of_json
from deepspark_ops.serve.start import load_served

pytestmark = pytest.mark.tf
NET = """
name: "two"
layer { name: "left" type: "Input" top: "left" input_param { shape { dim: 1 dim: 3 } } }
layer { name: "right" type: "Input" top: "right" input_param { shape { dim: 1 dim: 2 } } }
layer { name: "both" type: "Concat" bottom: "left" bottom: "right" top: "both" }
layer { name: "ip" type: "InnerProduct" bottom: "both" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
LEFT_VALUES = [[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]
RIGHT = [[1.0, -1.0], [2.0, 0.0]]


def test_each_input_has_a_column_or_a_name(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    net = build_net_spec(read_net(tmp_path / "net.prototxt"), phase="TEST")
    params = np.random.default_rng(0).normal(size=net.params.n_params).astype(np.float32)
    write_caffemodel(tmp_path / "w.caffemodel", net, params)
    bundle = tmp_path / "bundle"
    config = ConvertConfig(
        net=tmp_path / "net.prototxt", weights=tmp_path / "w.caffemodel", output=bundle, formats="caffe,saved_model"
    )
    (tmp_path / "convert.json").write_text(config.model_dump_json())
    convert(tmp_path / "convert.json")

    features = np.concatenate([LEFT_VALUES, RIGHT], axis=1) @ params[:15].reshape(3, 5).T + params[15:]
    expected = np.exp(features) / np.exp(features).sum(axis=1, keepdims=True)
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"left": LEFT_VALUES, "other": RIGHT, "id": ["first", "second"]}), table)
    options = {"bundle": bundle, "input": table, "input_columns": "right=other", "id_column": "id"}
    write_answers(PredictConfig(**options, output=tmp_path / "p"), on_step=lambda step: None)
    rows = pq.read_table(tmp_path / "p").to_pydict()
    assert rows["id"] == ["first", "second"]
    np.testing.assert_allclose(np.stack(rows["scores"]), expected, rtol=1e-5)
    write_answers(FeaturesConfig(**options, output=tmp_path / "f", blobs="ip"), on_step=lambda step: None)
    np.testing.assert_allclose(np.stack(pq.read_table(tmp_path / "f")["ip"].to_pylist()), features, rtol=1e-5)

    model = load_served(ServeConfig(bundle=bundle))
    body = {
        "instances": [
            {"left": left_value, "right": right} for left_value, right in zip(LEFT_VALUES, RIGHT, strict=True)
        ]
    }
    scores = model.answers(samples_of_json(json.dumps(body).encode(), model.form))["scores"]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
