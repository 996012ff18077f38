"""The curvature measured by a worker's model, against the curvature from algebra."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.comm_period import CommPeriod
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.data.data_binding import DataBinding
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.worker.net.tf_devices import set_up_worker
from deepspark_ops.train.worker.net.tf_model import TfModel
from deepspark_ops.train.worker.rates import measured_rates
from deepspark_ops.train.worker.rates.stabiliser import Stabiliser, stabiliser_plan

pytestmark = pytest.mark.tf

BATCH, SIDE, RATE, SCALE = 8, 3, 0.02, 8.0
# The convolution lets the image through, so that the inner product is linear regression on what is fed.
NET = """
layer { name: "data" type: "Input" top: "data" top: "target"
  input_param { shape { dim: 8 dim: 1 dim: 3 dim: 3 } shape { dim: 8 dim: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 1 kernel_size: 1 weight_filler { type: "constant" value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" param { lr_mult: 1 } param { lr_mult: 2 }
  inner_product_param { num_output: 2 weight_filler { type: "gaussian" std: 1.7 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss" }
"""


def measuring_run(folder: Path, *, n_workers: int, iter_size: int = 1) -> Run:
    values = {"solver": folder / "solver.prototxt", "run_dir": folder, "n_workers": n_workers, "strategy": "easgd"}
    solver = f'base_lr: {RATE} momentum: 0.5 lr_policy: "fixed" max_iter: 9 iter_size: {iter_size} random_seed: 1'
    config, net = parse_config(TrainConfig, values), build_net_spec(parse_net(NET), phase="TRAIN")
    binding, spec = DataBinding(None, folder, stamps={}), solver_spec(parse_solver(solver))
    return Run(config, RunPaths(folder), spec, net, (), binding, ComputePlan())


def measuring_model(folder: Path, *, n_workers: int, iter_size: int = 1) -> TfModel:
    run = measuring_run(folder, n_workers=n_workers, iter_size=iter_size)
    devices, _ = set_up_worker(AssignedDevices("cpu", (), 1), run.config, 1)
    return TfModel(run, worker=0, pull=lambda: initial_vector(run.train_net, 1), state=None, devices=devices)


def stabiliser_of(model: TfModel, folder: Path) -> Stabiliser:
    plan = stabiliser_plan(measuring_run(folder, n_workers=3), CommPeriod(1))
    return Stabiliser(plan, model, lambda clock: RATE * SCALE, lambda clock: RATE)


@pytest.mark.parametrize("iter_size", [1, 2])
def test_a_step_has_the_factor_that_the_minibatchs_curvature_allows(
    iter_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_rates, "FIRST_AT", 0)
    monkeypatch.setattr(measured_rates, "FIRST_ROUNDS", 40)
    rng = np.random.default_rng(2)
    images = rng.normal(size=(3 * iter_size, BATCH, 1, SIDE, SIDE)).astype(np.float32)
    targets = rng.normal(size=(3 * iter_size, BATCH, 2)).astype(np.float32)
    feeds = {"data": images, "target": targets}
    # Caffe's EuclideanLoss: sum of squares / (2 BATCH). Steps of the bias are twice as large.
    rows = images[:iter_size].reshape(-1, SIDE * SIDE).astype(np.float64)
    with_bias = np.hstack([rows, np.full((len(rows), 1), np.sqrt(2.0))])
    curvature = np.linalg.eigvalsh(with_bias.T @ with_bias / len(rows))[-1]
    factor = 0.5 * 2 * (1 + 0.5) / (RATE * SCALE * curvature)
    assert 1.2 < factor < 3.8, "the case must not be at a bound"

    model, plain = (measuring_model(tmp_path / str(p), n_workers=p, iter_size=iter_size) for p in (3, 2))
    steadied = stabiliser_of(model, tmp_path / "3")
    note = steadied.before_steps(0, 3, feeds)
    reported = re.search(r" (\S+) for inner products \(largest curvature (\S+)\);", note)
    assert reported is not None
    assert float(reported[1]) == pytest.approx(factor, rel=0.02)
    assert float(reported[2]) == pytest.approx(curvature, rel=0.02)

    first = {name: batches[:iter_size] for name, batches in feeds.items()}
    start = plain.local().copy()
    # The scores move by W x with the convolution's weight, and by W 1 with its bias.
    weights = start[2:20].reshape(2, SIDE * SIDE).astype(np.float64)
    slopes = np.stack([rows @ weights.T, np.broadcast_to(weights.sum(1), (len(rows), 2))], axis=-1).reshape(-1, 2)
    steepest = np.linalg.eigvalsh(slopes.T @ slopes / len(rows))[-1]
    lowered = 0.9 * 2 * (1 + 0.5) / (RATE * SCALE * steepest)
    assert 1 / SCALE < lowered < 0.95, "the case must not be at a bound"
    for each in (model, plain):
        each.run(step=0, n_steps=1, rate_scale=SCALE, feeds=first)
    moved, moved_plain = model.local() - start, plain.local() - start
    np.testing.assert_allclose(moved[:2], lowered * moved_plain[:2], rtol=0.02)  # the convolution's weight and bias
    np.testing.assert_allclose(moved[2:], factor * moved_plain[2:], rtol=0.02)


def test_a_replaced_momentum_is_in_memory_once(tmp_path: Path) -> None:
    model = measuring_model(tmp_path, n_workers=3)
    blobs = [aligned_vector(blob.size) for blob in model.momentum()]
    for number, blob in enumerate(blobs):
        blob[:] = number + np.arange(blob.size)
    model.replace_momentum(blobs)
    assert all(np.shares_memory(blob, model_blob) for blob, model_blob in zip(blobs, model.momentum(), strict=True))
    np.testing.assert_array_equal(model.state().history, np.concatenate(blobs)[np.newaxis])
