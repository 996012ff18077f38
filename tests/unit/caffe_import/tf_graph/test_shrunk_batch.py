"""Behind Filter the batch has an extent that only the run knows: every layer then computes as on the kept samples."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.gradients import run_passes
from caffe_import.tf_graph.train_step import compile_training

pytestmark = pytest.mark.tf

IS_KEPT = np.array([1, 0, 1, 1, 0], bool)
SHAPE = (4, 6, 6)

LAYERS = {
    "ArgMax": "argmax_param { top_k: 2 out_max_val: true }",
    "BatchNorm": "batch_norm_param { use_global_stats: false }",
    "Concat": 'bottom: "x"',
    "Convolution": "convolution_param { num_output: 3 kernel_size: 3 axis: 2 }",
    "Crop": 'bottom: "x" crop_param { axis: 2 }',
    "Deconvolution": "convolution_param { num_output: 4 kernel_size: 3 dilation: 2 stride: 2 }",
    "Eltwise": 'bottom: "x"',
    "Flatten": "flatten_param { axis: 0 end_axis: 1 }",
    "Im2col": "convolution_param { kernel_size: 3 }",
    "InnerProduct": "inner_product_param { num_output: 3 axis: 2 }",
    "LRN": "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 }",
    "MVN": "",
    "Pooling": "pooling_param { kernel_size: 3 stride: 2 pool: AVE pad: 1 }",
    "Reduction": "reduction_param { axis: 1 operation: MEAN }",
    "Reshape": "reshape_param { shape { dim: -1 dim: 8 } }",
    "SPP": "spp_param { pyramid_height: 2 }",
    "Softmax": "",
    "Tile": "tile_param { tiles: 2 }",
}
SUM = (
    'layer { name: "sum" type: "Reduction" bottom: "y" top: "sum" loss_weight: 1 reduction_param { operation: SUMSQ } }'
)
SCORES = 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 3 } }'
MATRIX = (
    'layer { name: "m" type: "DummyData" top: "m" '
    "dummy_data_param { shape { dim: 3 dim: 3 } data_filler { value: 0.5 } } }"
)
LOSSES = {
    "Accuracy": 'bottom: "l"',
    "ContrastiveLoss": 'bottom: "y" bottom: "l"',
    "EuclideanLoss": 'bottom: "z"',
    "HingeLoss": 'bottom: "l"',
    "InfogainLoss": 'bottom: "l" bottom: "m"',
    "MultinomialLogisticLoss": 'bottom: "l"',
    "SigmoidCrossEntropyLoss": 'bottom: "z"',
    "SoftmaxWithLoss": 'bottom: "l" loss_param { normalization: FULL }',
}


def filtered_net(n: int, layers: str, *, is_filtered: bool) -> NetSpec:
    shapes = "".join(
        f"shape {{ {' '.join(f'dim: {extent}' for extent in shape)} }}" for shape in ((n, *SHAPE), (n,), (n, 3), (n,))
    )
    pick = "".join(
        f'layer {{ name: "{blob}" type: "Split" bottom: "{blob}0" top: "{blob}" }}' for blob in ("x", "l", "z")
    )
    if is_filtered:
        pick = (
            'layer { name: "pick" type: "Filter" bottom: "x0" bottom: "l0" bottom: "z0" bottom: "keep" '
            'top: "x" top: "l" top: "z" }'
        )
    return build_net_spec(
        parse_net(
            'force_backward: true layer { name: "in" type: "Input" top: "x0" top: "l0" top: "z0" top: "keep" '
            f"input_param {{ {shapes} }} }} {pick} {layers}"
        ),
        phase="TRAIN",
    )


def compare_with_plain_batch(layers: str) -> None:
    rng = np.random.default_rng(1)
    fed = {
        "x0": rng.normal(size=(IS_KEPT.size, *SHAPE)),
        "l0": rng.integers(0, 3, IS_KEPT.size),
        "z0": rng.uniform(size=(IS_KEPT.size, 3)),
        "keep": IS_KEPT,
    }
    fed = {name: np.asarray(values, np.float32) for name, values in fed.items()}
    shrunk, plain = (
        filtered_net(n, layers, is_filtered=is_filtered)
        for n, is_filtered in ((IS_KEPT.size, True), (int(IS_KEPT.sum()), False))
    )
    params = rng.normal(size=plain.params.n_params).astype(np.float32)
    filtered, reduced = (
        run_passes(net, params, feeds, layer_state=initial_layer_state(net), top_gradients={})
        for net, feeds in ((shrunk, fed), (plain, {name: values[IS_KEPT] for name, values in fed.items()}))
    )
    for name in plain.layers[-1].tops:
        assert filtered.blobs[name].shape == reduced.blobs[name].shape
        np.testing.assert_allclose(filtered.blobs[name], reduced.blobs[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(filtered.param_gradients, reduced.param_gradients, rtol=1e-4, atol=1e-5)
    arrived = reduced.blob_gradients["x0"]
    if arrived is not None and filtered.blob_gradients["x0"] is not None:
        np.testing.assert_allclose(filtered.blob_gradients["x0"][IS_KEPT], arrived, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer_type", sorted(LAYERS))
def test_layer_behind_filter(layer_type: str) -> None:
    compare_with_plain_batch(
        f'layer {{ name: "n" type: "{layer_type}" bottom: "x" {LAYERS[layer_type]} top: "y" }} {SUM}'
    )


@pytest.mark.parametrize("layer_type", sorted(LOSSES))
def test_loss_behind_filter(layer_type: str) -> None:
    softmax = ""
    scores = "y"
    if layer_type == "MultinomialLogisticLoss":
        softmax, scores = 'layer { name: "p" type: "Softmax" bottom: "y" top: "p" }', "p"
    compare_with_plain_batch(
        f"{SCORES} {MATRIX if layer_type == 'InfogainLoss' else ''} {softmax} "
        f'layer {{ name: "n" type: "{layer_type}" bottom: "{scores}" {LOSSES[layer_type]} top: "loss" }}'
    )


@pytest.mark.parametrize("iter_size", [1, 2])
def test_training_reports_rows_of_nan_for_dropped_samples(iter_size: int) -> None:
    loss = 'layer { name: "n" type: "SoftmaxWithLoss" bottom: "y" bottom: "l" top: "loss" }'
    unread = 'layer { name: "o" type: "Power" bottom: "l" top: "kept" }'
    net = filtered_net(IS_KEPT.size, f"{SCORES} {loss} {unread}", is_filtered=True)
    solver = solver_spec(parse_solver(f'base_lr: 0.1 lr_policy: "fixed" max_iter: 9 iter_size: {iter_size}'))
    function = compile_training(net, solver, n_threads=1)
    rng, n = np.random.default_rng(1), 2 * iter_size
    keep = np.tile(IS_KEPT, (n, 1)).astype(np.float32)
    keep[-1] = 1
    fed = {
        "x0": rng.normal(size=(n, IS_KEPT.size, *SHAPE)).astype(np.float32),
        "l0": rng.integers(0, 3, (n, IS_KEPT.size)).astype(np.float32),
        "z0": np.zeros((n, IS_KEPT.size, 3), np.float32),
        "keep": keep,
    }
    start = function.initial_state(np.zeros(net.params.n_params, np.float32))
    _, outputs = function.run(start, step=0, n_steps=2, rate_scale=1.0, seed=0, worker=0, feeds=fed)
    assert np.isfinite(outputs.losses).all()
    first, last = outputs.outputs["kept"]
    np.testing.assert_array_equal(first[:3], fed["l0"][iter_size - 1][IS_KEPT])
    assert np.isnan(first[3:]).all()
    np.testing.assert_array_equal(last, fed["l0"][-1])
