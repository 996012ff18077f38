"""16-bit arithmetic: products against slow float64 references on rounded values; who computes in what; no cast else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from caffe_import.devices.compute_plan import ComputePlan, Precision
from caffe_import.files.prototxt import parse_net
from caffe_import.net.layer_registry import registered_types
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.tf_graph.builder import build_forward
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.gradients import Passes, run_passes
from caffe_import.tf_graph.passes import precision as tested
from tests.reference.layer_check import TWO_ROUNDINGS, Reference, assert_close, check_layer, run_layer
from tests.reference.slow_windows import slow_convolution, slow_deconvolution

pytestmark = pytest.mark.tf

DTYPES: dict[Precision, type] = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
SIXTEEN_BITS = pytest.mark.parametrize("precision", list(DTYPES))


def on_either_kind(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test of a precision on both kinds of kernels: kernels that compute in float32 cast to either type alike."""
    kinds = [*((precision, "as the device does") for precision in DTYPES), ("bfloat16", "float32 kernels")]
    with_kinds = pytest.mark.parametrize(("precision", "_kernels"), kinds, indirect=["_kernels"])
    return with_kinds(pytest.mark.usefixtures("_kernels")(test))


@pytest.fixture
def _kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute with what the device has, or as a device without kernels that add up in float32."""
    if request.param == "float32 kernels":
        monkeypatch.setattr(tested, "adds_up_in_float32", lambda dtype, device: False)


def drawn(precision: Precision, *shape: int, seed: int = 1) -> np.ndarray:
    """Return normal values that 16 bits can say, float64."""
    return np.random.default_rng(seed).normal(size=shape).astype(DTYPES[precision]).astype(np.float64)


def windows(
    slow: object, *, stride: int = 1, pad: int = 0, dilation: int = 1, group: int = 1, rank: int = 2
) -> Reference:
    """Return a slow reference with options, a single value for all axes."""
    spread = {"stride": (stride,) * rank, "pad": (pad,) * rank, "dilation": (dilation,) * rank}
    return lambda *arrays: [slow(*arrays, **spread, group=group)]  # type: ignore[operator]


CONVOLVED = {
    "plain": ("kernel_size: 3", {}, (2, 4, 6, 6), (4, 4, 3, 3)),
    "same": ("kernel_size: 3 pad: 1", {"pad": 1}, (2, 4, 6, 6), (4, 4, 3, 3)),
    "one pixel": ("kernel_size: 1", {}, (2, 4, 5, 5), (4, 4, 1, 1)),
    "two groups": ("kernel_size: 3 group: 2", {"group": 2}, (2, 4, 5, 5), (4, 2, 3, 3)),
    "depthwise": ("kernel_size: 3 group: 4", {"group": 4}, (2, 4, 5, 5), (4, 1, 3, 3)),
    "dilated": ("kernel_size: 3 dilation: 2", {"dilation": 2}, (2, 4, 7, 7), (4, 4, 3, 3)),
    "by taps": (
        "kernel_size: 3 stride: 2 dilation: 2", {"stride": 2, "dilation": 2}, (2, 4, 7, 7), (4, 4, 3, 3),
    ),
    "three axes": (
        "kernel_size: 2 kernel_size: 2 kernel_size: 2", {"rank": 3}, (1, 2, 4, 4, 4), (4, 2, 2, 2, 2),
    ),
}  # fmt: skip


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize(
    ("case", "precision", "_kernels"),
    # The types differ in their kernels' sums alone: a plain convolution and one by taps show those of float16.
    [
        *((case, "bfloat16", kernels) for case in CONVOLVED for kernels in ("as the device does", "float32 kernels")),
        *((case, "float16", "as the device does") for case in ("plain", "by taps")),
    ],
    indirect=["_kernels"],
)
def test_a_convolution_is_the_sum_of_rounded_values_rounded(case: str, precision: Precision) -> None:
    options, slow, bottom, weights = CONVOLVED[case]
    run = check_layer(
        f'type: "Convolution" top: "n0" convolution_param {{ num_output: 4 {options} }}',
        windows(slow_convolution, **slow),
        [drawn(precision, *bottom)],
        [drawn(precision, *weights, seed=2), drawn(precision, 4, seed=3)],
        precision=precision,
    )
    for array in (*run.tops, run.passes.blob_gradients["x0"]):
        assert np.array_equal(array, np.asarray(array).astype(DTYPES[precision]).astype(np.float32)), "not rounded"


@SIXTEEN_BITS
@pytest.mark.parametrize("layer_type", ["ConvolutionDepthwise", "DepthwiseConvolution"])
def test_a_depthwise_convolution_too(layer_type: str, precision: Precision) -> None:
    options, slow, bottom, weights = CONVOLVED["depthwise"]
    check_layer(
        f'type: "{layer_type}" top: "n0" convolution_param {{ num_output: 4 {options} }}',
        windows(slow_convolution, **slow),
        [drawn(precision, *bottom)],
        [drawn(precision, *weights, seed=2), drawn(precision, 4, seed=3)],
        precision=precision,
    )


@on_either_kind
@pytest.mark.parametrize("group", [1, 4])
def test_a_deconvolution_too(group: int, precision: Precision) -> None:
    check_layer(
        f'type: "Deconvolution" top: "n0" convolution_param {{ num_output: 4 kernel_size: 4 stride: 2'
        f" group: {group} }}",
        windows(slow_deconvolution, stride=2, group=group),
        [drawn(precision, 2, 4, 4, 4)],
        [drawn(precision, 4, 4 // group, 4, 4, seed=2), drawn(precision, 4, seed=3)],
        precision=precision,
    )


@on_either_kind
def test_an_inner_product_too(precision: Precision) -> None:
    check_layer(
        'type: "InnerProduct" top: "n0" inner_product_param { num_output: 5 }',
        lambda x, w, b: [x @ w.T + b],
        [drawn(precision, 6, 300)],
        [drawn(precision, 5, 300, seed=2), drawn(precision, 5, seed=3)],
        precision=precision,
    )


@on_either_kind
@pytest.mark.parametrize(
    ("text", "bottom", "blobs", "n_terms"),
    [
        ('type: "InnerProduct" top: "n0" inner_product_param { num_output: 4 }', (4000, 2), [(4, 2), (4,)], 4000),
        (
            'type: "Convolution" top: "n0" convolution_param { num_output: 4 kernel_size: 2 stride: 2 }',
            (4, 2, 64, 64), [(4, 2, 2, 2), (4,)], 4096,
        ),
        (
            'type: "Convolution" top: "n0" convolution_param { num_output: 2 kernel_size: 1'
            " kernel_size: 1 kernel_size: 1 }",
            (4, 2, 4, 16, 16), [(2, 2, 1, 1, 1), (2,)], 4096,
        ),
    ],
)  # fmt: skip
def test_gradients_over_thousands_of_terms_do_not_stop_to_grow(
    text: str, bottom: tuple[int, ...], blobs: list[tuple[int, ...]], n_terms: int, precision: Precision
) -> None:
    # In 16 bits a sum of equal terms stops at 256 (bfloat16) or 2048 (float16) of them.
    top = run_layer(text, [np.ones(bottom)], [np.ones(shape) for shape in blobs]).tops[0].shape
    ones = {"n0": np.full(top, 2.0**-4)}
    run = run_layer(text, [np.ones(bottom)], [np.ones(b) for b in blobs], top_gradients=ones, precision=precision)
    views = run.net.params.views(run.passes.param_gradients)
    for index, shape in enumerate(blobs):
        expected = np.full(shape, n_terms * 2.0**-4)
        assert_close(views[f"layer[{index}]"], expected, TWO_ROUNDINGS[precision], f"gradient of blob {index}")


CHAIN = """
layer { name: "in" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } shape { dim: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "relu" }
layer { name: "max" type: "Pooling" bottom: "relu" top: "max" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "max" top: "drop" }
layer { name: "ave" type: "Pooling" bottom: "max" top: "ave" pooling_param { pool: AVE kernel_size: 3 pad: 1 } }
layer { name: "lrn" type: "LRN" bottom: "drop" top: "lrn" }
layer { name: "both" type: "Concat" bottom: "drop" bottom: "lrn" top: "both" }
layer { name: "same" type: "Concat" bottom: "drop" bottom: "max" top: "same" }
layer { name: "flat" type: "Flatten" bottom: "same" top: "flat" }
layer { name: "ip" type: "InnerProduct" bottom: "flat" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def traced_dtypes(net: NetSpec, precision: Precision, *, loss_of: str = "") -> dict[str, str]:
    """Return blob -> dtype of a pass that is traced and not run; ``loss_of`` is a blob in place of a loss."""
    forward = build_forward(net, ComputePlan(precision=precision))
    dtypes: dict[str, str] = {}

    def tap(name: str, blob: Blob) -> Blob:
        dtypes[name] = blob.dtype.name
        return blob

    with tf.Graph().as_default():
        entries = forward.entries(tf.zeros(net.params.n_params))
        feeds = {name: tf.zeros(shape) for name, shape in net.inputs.items()}
        result = forward.on_entries(entries, {}, tf.zeros(2, tf.int32), feeds, tap)
        loss = tf.reduce_sum(result.blobs[loss_of].as_dtype(tf.float32).values) if loss_of else result.loss
        assert loss.dtype == tf.float32
        gradients = [gradient for gradient in tf.gradients(loss, entries) if gradient is not None]
        assert {gradient.dtype for gradient in gradients} == {tf.float32}
    return dtypes


@SIXTEEN_BITS
def test_products_and_value_keeping_layers_use_16_bits_and_others_float32(
    precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = build_net_spec(parse_net(CHAIN), phase="TRAIN")
    monkeypatch.setattr(tested, "adds_up_in_float32", lambda dtype, device: True)
    wide = {"data", "label", "ave", "lrn", "both", "loss"}
    expected = {name: "float32" if name in wide else precision for name in net.blob_shapes if "split" not in name}
    dtypes = traced_dtypes(net, precision)
    assert {name: dtypes[name] for name in expected} == expected
    monkeypatch.setattr(tested, "adds_up_in_float32", lambda dtype, device: False)
    assert set(traced_dtypes(net, precision).values()) == {"float32"}


def test_a_float32_net_casts_no_float() -> None:
    net = build_net_spec(parse_net(CHAIN), phase="TRAIN")
    forward = build_forward(net, ComputePlan(precision="float32"))
    with tf.Graph().as_default() as graph:
        entries = forward.entries(tf.zeros(net.params.n_params))
        feeds = {name: tf.zeros(shape) for name, shape in net.inputs.items()}
        tf.gradients(forward.on_entries(entries, {}, tf.zeros(2, tf.int32), feeds).loss, entries)
        casts = [op for op in graph.get_operations() if op.type == "Cast"]
    assert [op.name for op in casts if op.inputs[0].dtype.is_floating and op.outputs[0].dtype.is_floating] == []


def run_both(text: str, precision: Precision, top: str, shape: Sequence[int]) -> tuple[Passes, Passes]:
    net = build_net_spec(parse_net("force_backward: true\n" + text), phase="TRAIN")
    vector = drawn(precision, net.params.n_params, seed=4).astype(np.float32)
    feeds = {name: drawn(precision, *extent, seed=5).astype(np.float32) for name, extent in net.inputs.items()}
    run = partial(
        run_passes, net, vector, feeds, layer_state={}, top_gradients={top: drawn(precision, *shape).astype(np.float32)}
    )
    return run(), run(plan=ComputePlan(precision=precision))


IN_PLACE = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "tanh" type: "TanH" bottom: "conv" top: "conv" }
layer { name: "power" type: "Power" bottom: "conv" top: "conv" power_param { power: 2 scale: 0.5 shift: 1 } }
"""


@on_either_kind
def test_gradients_that_read_overwritten_memory_mix_dtypes(precision: Precision) -> None:
    exact, rounded = run_both(IN_PLACE, precision, "conv", (2, 4, 4, 4))
    # TanH saturates, and the square doubles an error: some roundings more than a product has.
    assert_close(rounded.blobs["conv"], exact.blobs["conv"], 4 * TWO_ROUNDINGS[precision], "conv")
    assert_close(rounded.param_gradients, exact.param_gradients, 8 * TWO_ROUNDINGS[precision], "gradient")
    assert not np.array_equal(rounded.param_gradients, exact.param_gradients)


@pytest.mark.parametrize(
    ("add_up", "expected"),
    [
        (lambda values: tf.cumsum(values, axis=0)[-1], False),
        (lambda values: tf.cast(tf.reduce_sum(tf.cast(values, tf.float32), axis=0), values.dtype), True),
    ],
)
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_kernels_that_add_up_in_16_bits_are_found(
    add_up: Callable[[tf.Tensor], tf.Tensor], expected: bool, dtype: tf.DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "_PROBES", ((lambda x, k: add_up(x * k), ((8000, 2), (8000, 2))),))
    assert tested.adds_up_in_float32.__wrapped__(dtype, "/CPU:0") is expected


CARRIERS = {
    "AbsVal": "",
    "Concat": 'bottom: "other"',
    "Dropout": "",
    "Eltwise": 'bottom: "other" eltwise_param { operation: MAX }',
    "Flatten": "",
    "Permute": "permute_param { order: 0 order: 2 order: 3 order: 1 }",
    "Pooling": "pooling_param { kernel_size: 3 stride: 3 pad: 1 }",
    "ReLU": "relu_param { negative_slope: 0.25 }",
    "ReLU6": "",
    "Reshape": "reshape_param { shape { dim: 0 dim: -1 } }",
    "ShuffleChannel": "shuffle_channel_param { group: 2 }",
    "Silence": "",
    "Slice": "slice_param { slice_point: 1 }",
    "Split": "",
}
TOPS = {"Silence": (), "Slice": ("t0", "t1"), "Split": ("t0", "t1")}
CARRIED = """
layer { name: "in" type: "Input" top: "data"
  input_param { shape { dim: 2 dim: 4 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "x"
  convolution_param { num_output: 4 kernel_size: 1 bias_term: false } }
layer { name: "conv2" type: "Convolution" bottom: "data" top: "other"
  convolution_param { num_output: 4 kernel_size: 1 bias_term: false } }
"""


def test_every_type_that_keeps_values_is_carried() -> None:
    carrier_types = {name for name, kind in registered_types().items() if kind.traits.arithmetic == "kept"}
    assert set(CARRIERS) == {*carrier_types, "Pooling", "Eltwise"}, "of Pooling and Eltwise the options decide"


@pytest.mark.parametrize("kind", list(CARRIERS))
def test_what_keeps_its_values_loses_nothing_in_16_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "adds_up_in_float32", lambda dtype, device: True)
    names = TOPS.get(kind, ("t0",))
    tops = " ".join(f'top: "{name}"' for name in names)
    layer = f'layer {{ name: "kept" type: "{kind}" bottom: "x" {tops} {CARRIERS[kind]} }}'
    net = build_net_spec(parse_net(f"force_backward: true\n{CARRIED}{layer}"), phase="TRAIN")
    if names:
        dtypes = traced_dtypes(net, "bfloat16", loss_of=names[0])
        assert {dtypes[name] for name in names} == {"bfloat16"}
    eye = np.eye(4, dtype=np.float32).reshape(-1)
    feeds = {name: drawn("bfloat16", *shape, seed=6).astype(np.float32) for name, shape in net.inputs.items()}
    gradients = {name: drawn("bfloat16", *net.blob_shapes[name], seed=7).astype(np.float32) for name in names}
    run = partial(run_passes, net, np.concatenate([eye, -eye]), feeds, layer_state={}, top_gradients=gradients)
    exact, rounded = run(), run(plan=ComputePlan(precision="bfloat16"))
    for name in names:
        assert np.array_equal(rounded.blobs[name], exact.blobs[name])
    if names:
        # Where a value has several readers, here conv and conv2, their gradients are added up in 16 bits.
        rounded_gradient, exact_gradient = rounded.blob_gradients["x"], exact.blob_gradients["x"]
        assert_close(
            rounded_gradient, exact_gradient, TWO_ROUNDINGS["bfloat16"] if kind in ("Split", "Pooling") else 1e-12, kind
        )
