"""Recomputed segments give the numbers of the plain step, for every net and solver."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffe_import.devices.compute_plan import PLAIN, ComputePlan
from caffe_import.devices.segments import choose_segments
from caffe_import.files.prototxt import parse_net, parse_solver, read_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.parity.case import Case, load_archive, load_cases
from caffe_import.parity.feeds import NetBatches
from caffe_import.parity.findings import members_under
from caffe_import.parity.net_cases import params_of
from caffe_import.parity.solver_cases import training_net
from caffe_import.solver.loaded_solver import load_solver
from caffe_import.solver.solver_spec import SolverSpec, solver_spec
from caffe_import.tf_graph.builder import fed_blobs
from caffe_import.tf_graph.train_step import compile_training
from tests.paths import FIXTURES
from tests.reference.finest_segments import finest_segments

pytestmark = pytest.mark.tf

_FULL_SET = os.environ.get("DEEPSPARK_CAFFE_ORACLE")
_FOLDER = Path(_FULL_SET) if _FULL_SET else FIXTURES / "caffe"
# Nets whose sharing, in-place chains, statistics, state, losses and shapes differ most; the others are long tests.
_NETS = ("fanout", "inplace_bn_chain", "multi_loss", "embed_lstm", "filter_net", "siamese")
_SOLVERS = ("sgd_batchnorm", "sgd_iter_size3_clip")
_N_STEPS = 3
_ROUNDING = 2e-6
"""Of the largest value; gradients that come from several readers may be added up in another order."""


def cases(kind: str, selection: Sequence[str]) -> list[Any]:
    """Return the cases of a kind; cases outside the selection are for `make test-long`."""
    return [
        pytest.param(case, id=case.name, marks=[] if case.name in selection else pytest.mark.long)
        for case in load_cases(_FOLDER)
        if case.kind == kind
    ]


def steps(net: NetSpec, solver: SolverSpec, plan: ComputePlan, start: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """Return parameters, history, layer state and losses after some steps."""
    train = compile_training(net, solver, n_threads=1, plan=plan)
    state, outputs = train.run(
        train.initial_state(start), step=0, n_steps=_N_STEPS, rate_scale=1.0, seed=3, worker=1, feeds=feeds
    )
    layer_state = [np.asarray(state.layer_state[name]) for name in sorted(state.layer_state)]
    reported = [outputs.outputs[name] for name in sorted(outputs.outputs)]
    return [state.params_view(), state.history_view(), outputs.losses, *layer_state, *reported]


def assert_plain_numbers(net: NetSpec, solver: SolverSpec, start: Any, feeds: Mapping[str, Any]) -> None:
    plain = steps(net, solver, PLAIN, start, feeds)
    for segments in {finest_segments(net), choose_segments(net)} - {()}:
        recomputed = steps(net, solver, ComputePlan(recompute=segments), start, feeds)
        for array, plain_array in zip(recomputed, plain, strict=True):
            bound = _ROUNDING * max(1e-30, float(np.nanmax(np.abs(plain_array), initial=0.0)))
            np.testing.assert_allclose(array, plain_array, rtol=0, atol=bound)


@pytest.mark.parametrize("case", cases("net", _NETS))
def test_recorded_nets(case: Case) -> None:
    variants = case.record.get("variants") or [{"tag": "", "phase": case.record["phase"]}]
    variant = next((recorded for recorded in variants if recorded["phase"] == "TRAIN"), variants[0])
    with chdir(case.folder):
        tag = f".{variant['tag']}" if variant["tag"] else ""
        archive = load_archive(case.file(".prototxt").with_suffix(f"{tag}.npz"))
        message = read_net(case.file(".prototxt"))
        if not any(weight for layer in build_net_spec(message, phase="TRAIN").layers for weight in layer.loss_weights):
            message.layer[-1].loss_weight[:] = [1.0] * len(message.layer[-1].top)
        net = build_net_spec(message, phase="TRAIN", stages=tuple(variant.get("stages", ())))
    if not net.params.n_params:
        pytest.skip("a net without parameters has no training step")
    rng = np.random.default_rng(2)
    recorded = members_under(archive, "input")
    feeds = {
        name: np.stack([recorded[name].reshape(shape) if name in recorded else rng.random(shape)] * _N_STEPS)
        for name, shape in fed_blobs(net).items()
    }
    solver = solver_spec(parse_solver('base_lr: 0.01 lr_policy: "fixed" max_iter: 9 momentum: 0.9'))
    assert_plain_numbers(net, solver, params_of(net, members_under(archive, "param")), feeds)


@pytest.mark.parametrize("case", cases("solver", _SOLVERS))
def test_recorded_solvers(case: Case) -> None:
    with chdir(case.folder):
        loaded = load_solver(case.file("solver.prototxt"))
        net = training_net(loaded)
        start = params_of(net, members_under(load_archive(case.file("trajectory.npz")), "init"))
        with NetBatches(net) as batches:
            feeds = batches.stacked(_N_STEPS * loaded.spec.iter_size)
        assert_plain_numbers(net, loaded.spec, start, feeds)


_DROPOUT_NET = """
layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 4 dim: 6 } shape { dim: 4 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "x" top: "ip1" inner_product_param {
  num_output: 64 weight_filler { type: "xavier" } } }
layer { name: "drop1" type: "Dropout" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param {
  num_output: 64 weight_filler { type: "xavier" } } }
layer { name: "drop2" type: "Dropout" bottom: "ip2" top: "ip2" }
layer { name: "ip3" type: "InnerProduct" bottom: "ip2" top: "ip3" inner_product_param {
  num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip3" bottom: "y" top: "loss" }
"""


def test_dropout_draws_the_same_values_again() -> None:
    net = build_net_spec(parse_net(_DROPOUT_NET), phase="TRAIN")
    solver = solver_spec(parse_solver('base_lr: 0.5 lr_policy: "fixed" max_iter: 9'))
    rng = np.random.default_rng(4)
    feeds = {"x": rng.standard_normal((_N_STEPS, 4, 6)).astype(np.float32), "y": np.ones((_N_STEPS, 4), np.float32)}
    start = initial_vector(net, 1)
    plain = steps(net, solver, PLAIN, start, feeds)
    recomputed = steps(net, solver, ComputePlan(recompute=finest_segments(net)), start, feeds)
    for array, plain_array in zip(recomputed, plain, strict=True):
        np.testing.assert_array_equal(array, plain_array)


def test_segments_that_are_no_runs_of_layers_are_refused() -> None:
    net = build_net_spec(parse_net(_DROPOUT_NET), phase="TRAIN")
    solver = solver_spec(parse_solver('base_lr: 0.5 lr_policy: "fixed" max_iter: 9'))
    for segments, finding in (
        ((("ip1", "ip2"),), "segment ip1, ip2: these are not consecutive layers of the net"),
        ((("ip1", "drop1", "ip2"), ("ip2", "drop2")), 'two segments hold layer "ip2"'),
    ):
        with pytest.raises(ValueError, match=finding):
            compile_training(net, solver, n_threads=1, plan=ComputePlan(recompute=segments))
