"""Passes and steps of single samples of other sizes: the numbers are those of a net built for the size."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_solver
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph import other_shapes
from caffe_import.tf_graph.mixed_steps import MixedSteps, are_mixed
from caffe_import.tf_graph.other_shapes import OtherShapes
from caffe_import.tf_graph.predict import compile_fixed_forward, compile_forward, compile_prepared_forward
from caffe_import.tf_graph.train_step import TrainFunction, compile_training
from tests.reference.parsed_net import net_of

pytestmark = pytest.mark.tf

SIZES = [(6, 8), (9, 5), (7, 7)]
INPUT = """
layer {{ name: "in" type: "Input" top: "data" top: "label"
  input_param {{ shape {{ dim: {batch} dim: 3 dim: {size[0]} dim: {size[1]} }} shape {{ dim: {batch} }} }} }}
"""
LAYERS = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" batch_norm_param { use_global_stats: true } }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "drop" }
layer { name: "pool" type: "Pooling" bottom: "drop" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.1 max_iter: 9 type: "{kind}" iter_size: {n}'


def net_for(size: tuple[int, int], phase: str = "TRAIN", batch: int = 1) -> NetSpec:
    return net_of(INPUT.format(size=size, batch=batch) + LAYERS, phase=phase)


def known_params(net: NetSpec) -> np.ndarray:
    vector = np.random.default_rng(1).normal(size=net.params.n_params).astype(np.float32)
    net.params.views(vector)["bn[1]"][...] = 2.0
    net.params.views(vector)["bn[2]"][...] = 1.5
    return vector


def sample_of(size: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"data": rng.normal(size=(1, 3, *size)).astype(np.float32), "label": np.float32([seed % 3])}


def training(size: tuple[int, int], kind: str = "SGD", iter_size: int = 1) -> TrainFunction:
    solver = solver_spec(parse_solver(SOLVER.format(kind=kind, n=iter_size)))
    return compile_training(net_for(size), solver, n_threads=1)


@pytest.mark.parametrize("own_batch", [1, 4])
def test_passes_of_each_size_are_those_of_a_net_of_the_size(own_batch):
    net = net_for(SIZES[0], "TEST", own_batch)
    vector = known_params(net)
    fixed = compile_fixed_forward(net, vector, n_threads=1, takes_sizes=True)
    single = net_for(SIZES[0], "TEST")
    prepared = compile_prepared_forward(single, n_threads=1)
    values = prepared.prepared(vector)
    for seed, size in enumerate([*SIZES, SIZES[1], SIZES[0]]):
        feeds = sample_of(size, seed)
        expected = compile_forward(net_for(size, "TEST"), n_threads=1)(vector, feeds)["loss"]
        np.testing.assert_allclose(fixed(feeds)["loss"], expected, rtol=1e-5)
        np.testing.assert_allclose(prepared.run(values, feeds, layer_state={}).blobs["loss"], expected, rtol=1e-5)


def test_a_fixed_pass_that_was_not_compiled_for_sizes_takes_its_own_alone():
    net = net_for(SIZES[0], "TEST")
    with pytest.raises(ValueError, match=r'feed for blob "data" has shape \(1, 3, 9, 5\)'):
        compile_fixed_forward(net, known_params(net), n_threads=1)(sample_of(SIZES[1], 0))


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_steps_of_each_size_are_those_of_a_net_of_the_size(kind):
    """The state goes from step to step through functions of each size, with the same random numbers."""
    function, expected_of = training(SIZES[0], kind), {size: training(size, kind) for size in SIZES}
    state = expected = function.initial_state(known_params(function.net))
    for step, size in enumerate([*SIZES, SIZES[1], SIZES[0]]):
        feeds = {name: values[np.newaxis] for name, values in sample_of(size, step).items()}
        arguments = {"step": step, "n_steps": 1, "rate_scale": 1.0, "seed": 3, "worker": 2, "feeds": feeds}
        state, outputs = function.run(state, **arguments, gives_away=step > 0)
        expected, expected_outputs = expected_of[size].run(expected, **arguments)
        np.testing.assert_array_equal(outputs.losses, expected_outputs.losses)
        np.testing.assert_array_equal(state.params_view(), expected.params_view())
        np.testing.assert_array_equal(state.history_view(), expected.history_view())
    assert function.count_traces == 1


def test_mixed_passes_of_one_size_are_the_steps_of_that_size():
    """Passes that are given as objects, with the seeds, the sum and the mean of ``iter_size`` passes."""
    function = training(SIZES[0], iter_size=3)
    mixed = MixedSteps(function)
    state = expected = function.initial_state(known_params(function.net))
    for step in range(3):
        samples = [sample_of(SIZES[0], 10 * step + k) for k in range(3)]
        feeds = {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
        objects = np.empty(3, np.object_)
        for k, sample in enumerate(samples):
            objects[k] = sample["data"]
        arguments = {"step": step, "n_steps": 1, "rate_scale": 0.5, "seed": 3, "worker": 1}
        state, outputs = mixed.run(state, **arguments, feeds={**feeds, "data": objects})
        expected, expected_outputs = function.run(expected, **arguments, feeds=feeds)
        np.testing.assert_allclose(outputs.losses, expected_outputs.losses, rtol=1e-6)
        np.testing.assert_array_equal(outputs.lr, expected_outputs.lr)
        np.testing.assert_allclose(state.params_view(), expected.params_view(), rtol=1e-5, atol=1e-7)
        assert are_mixed({**feeds, "data": objects})
        assert not are_mixed(feeds)


def test_a_size_that_the_net_cannot_have_is_refused():
    net = net_of(
        INPUT.format(size=(6, 8), batch=1)
        + 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }',
        phase="TEST",
    )
    forward = compile_prepared_forward(net, n_threads=1)
    values = forward.prepared(np.zeros(net.params.n_params, np.float32))
    with pytest.raises(NetError, match=r'layer "ip" \(InnerProduct\): its parameters have shapes \(2, 144\)'):
        forward.run(values, sample_of((9, 5), 0), layer_state={})


def test_the_latest_sizes_are_kept_and_the_bound_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(other_shapes, "MOST_SHAPES", 2)
    compiled = []

    def compile_net(net: NetSpec) -> NetSpec:
        compiled.append(net.inputs["data"][2:])
        return net

    others = OtherShapes(net_for(SIZES[0]), compile_net)
    with caplog.at_level(logging.WARNING):
        for width in (5, 6, 5, 7, 5, 6, 7):  # 7 takes the room of 6, 6 that of 7, and 7 that of 5
            others.of({"data": (1, 3, 9, width), "label": (1,)})
    assert compiled == [(9, 5), (9, 6), (9, 7), (9, 6), (9, 7)]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "samples have more than 2 sizes; the graphs of the latest 2 sizes are kept" in line
