"""Test nets in training: two passes at a time on two threads, one after another where layer state goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.layer_registry import Phase
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.devices import ReadyDevices
from caffe_import.tf_graph.predict import FixedPass, PreparedForward
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.data.data_binding import DataBinding
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.worker.net.tf_model import TfModel
from tests.reference.slow_recurrent import slow_rnn

pytestmark = pytest.mark.tf

LIMIT_S = 60.0
N_BATCHES, STEPS, ROWS = 6, 3, 2
FEEDS = 'layer { name: "in" type: "Input" top: "x" top: "cont" input_param { shape { %s dim: 3 } shape { %s } } }'
PRODUCT = """
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y"
  inner_product_param { num_output: 2 axis: 2 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "silence" type: "Silence" bottom: "cont" }
"""
RECURRENT = """
layer { name: "rnn" type: "RNN" bottom: "x" bottom: "cont" top: "y"
  recurrent_param { num_output: 2 weight_filler { type: "gaussian" std: 1 } } }
"""


def net_of(layers: str, phase: Phase) -> NetSpec:
    dims = f"dim: {STEPS} dim: {ROWS}"
    return build_net_spec(parse_net(FEEDS % (dims, dims) + layers), phase=phase)


def tf_model(folder: Path, layers: str) -> TfModel:
    train_net, test_net = net_of(layers, "TRAIN"), net_of(layers, "TEST")
    config = parse_config(TrainConfig, {"solver": folder / "solver.prototxt", "run_dir": folder, "n_workers": 1})
    spec = solver_spec(parse_solver('base_lr: 0.1 lr_policy: "fixed" max_iter: 1 random_seed: 1'))
    binding = DataBinding(None, folder, stamps={})
    run = Run(config, RunPaths(folder), spec, train_net, (test_net,), binding, ComputePlan())
    params = np.random.default_rng(1).normal(size=train_net.params.n_params).astype(np.float32)
    devices = ReadyDevices("cpu", (), "CPU", 2)
    return TfModel(run, worker=0, pull=params.copy, state=None, devices=devices)


def batches() -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(2)
    for number in range(N_BATCHES):
        cont = np.ones((STEPS, ROWS), np.float32)
        cont[0] = number > 0  # a sequence goes on in the next batch
        yield {"x": rng.normal(size=(STEPS, ROWS, 3)).astype(np.float32), "cont": cont}


def outputs_of_test(model: TfModel) -> list[np.ndarray]:
    model.begin_test(0, model.local())
    values = [outputs["y"] for outputs in model.test(0, batches())]
    model.write_test_outputs(0)
    return values


def test_passes_run_two_at_a_time_and_the_outputs_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = threading.Barrier(2)
    run = PreparedForward.run

    def together(self: PreparedForward, *arguments: Any, **options: Any) -> FixedPass:
        at_once.wait(LIMIT_S)  # broken unless two passes run at the same time
        return run(self, *arguments, **options)

    monkeypatch.setattr(PreparedForward, "run", together)
    model = tf_model(tmp_path, PRODUCT)
    weights, bias = np.split(model.local().astype(np.float64), [6])
    for feeds, value in zip(batches(), outputs_of_test(model), strict=True):
        expected = feeds["x"].astype(np.float64) @ weights.reshape(2, 3).T + bias
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_a_sequence_goes_on_from_batch_to_batch(tmp_path: Path) -> None:
    model = tf_model(tmp_path, RECURRENT)
    weights = [view.astype(np.float64) for view in net_of(RECURRENT, "TEST").params.views(model.local()).values()]
    fed = list(batches())
    expected, _ = slow_rnn(*(np.concatenate([feeds[blob] for feeds in fed]) for blob in ("x", "cont")), *weights)
    for _ in range(2):  # the second test begins with the mark of a new sequence
        np.testing.assert_allclose(np.concatenate(outputs_of_test(model)), expected, rtol=0, atol=1e-5)
