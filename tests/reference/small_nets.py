"""Nets of a few hundred parameters with what published ones are made of: each ends in class probabilities "prob"."""

from __future__ import annotations


def _input(*shape):
    dims = " ".join(f"dim: {extent}" for extent in (1, *shape))
    return f'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ {dims} }} }} }}'


def _layer(kind, name, bottoms, options="", top=None):
    read = " ".join(f'bottom: "{bottom}"' for bottom in bottoms.split())
    tops = " ".join(f'top: "{blob}"' for blob in (top or name).split())
    return f'layer {{ name: "{name}" type: "{kind}" {read} {tops} {options} }}'


def _conv(name, bottom, outputs, kernel, more="", kind="Convolution"):
    fillers = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -0.3 max: 0.3 }'
    options = f"convolution_param {{ num_output: {outputs} kernel_size: {kernel} {more} {fillers} }}"
    return _layer(kind, name, bottom, options)


def _pool(name, bottom, method, more):
    return _layer("Pooling", name, bottom, f"pooling_param {{ pool: {method} {more} }}")


def _classes(bottom, n=4):
    fillers = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -0.3 max: 0.3 }'
    product = _layer("InnerProduct", "scores", bottom, f"inner_product_param {{ num_output: {n} {fillers} }}")
    return f"{product}\n{_layer('Softmax', 'prob', 'scores')}"


def _relu(blob):
    return _layer("ReLU", f"relu_{blob}", blob, top=blob)


def _net(name, *layers):
    return "\n".join([f'name: "{name}"', *layers]) + "\n"


def _normalized(name, bottom):
    """BatchNorm with its Scale, both in place of the blob, as in ResNets."""
    filler = 'filler { type: "uniform" min: 0.5 max: 1.5 } bias_filler { type: "uniform" min: -0.5 max: 0.5 }'
    return "\n".join(
        [
            _layer("BatchNorm", f"bn_{name}", bottom, top=bottom),
            _layer("Scale", f"scale_{name}", bottom, f"scale_param {{ bias_term: true {filler} }}", top=bottom),
        ]
    )


SMALL_NETS = {
    "lenet": _net(
        "lenet",
        _input(1, 12, 12),
        _conv("conv1", "data", 3, 5),
        _pool("pool1", "conv1", "MAX", "kernel_size: 2 stride: 2"),
        _conv("conv2", "pool1", 5, 3),
        _pool("pool2", "conv2", "MAX", "kernel_size: 2 stride: 2"),
        _classes("pool2"),
    ),
    "cifar10_quick": _net(
        "cifar10_quick",
        _input(3, 16, 16),
        _conv("conv1", "data", 4, 5, "pad: 2"),
        _pool("pool1", "conv1", "MAX", "kernel_size: 3 stride: 2"),
        _relu("pool1"),
        _conv("conv2", "pool1", 4, 5, "pad: 2"),
        _relu("conv2"),
        _pool("pool2", "conv2", "AVE", "kernel_size: 3 stride: 2"),
        _classes("pool2"),
    ),
    "alexnet": _net(
        "alexnet",
        _input(3, 21, 21),
        _conv("conv1", "data", 8, 5, "stride: 2"),
        _relu("conv1"),
        _layer("LRN", "norm1", "conv1", "lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 k: 1.5 }"),
        _pool("pool1", "norm1", "MAX", "kernel_size: 3 stride: 2"),
        _conv("conv2", "pool1", 6, 3, "pad: 1 group: 2"),
        _relu("conv2"),
        _layer("LRN", "norm2", "conv2", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 alpha: 0.8 }"),
        _layer("Dropout", "drop", "norm2", top="norm2"),
        _classes("norm2"),
    ),
    "inception": _net(
        "inception",
        _input(3, 11, 11),
        _pool("pool", "data", "MAX", "kernel_size: 3 stride: 2 pad: 1"),
        _conv("inc/1x1", "pool", 2, 1),
        _conv("inc/3x3", "pool", 3, 3, "pad: 1"),
        _pool("inc/pool", "pool", "MAX", "kernel_size: 3 stride: 1 pad: 1"),
        _conv("inc/proj", "inc/pool", 2, 1),
        _layer("Concat", "inc/out", "inc/1x1 inc/3x3 inc/proj"),
        _pool("half", "inc/out", "AVE", "kernel_size: 3 stride: 2 pad: 1"),
        _pool("whole", "half", "AVE", "global_pooling: true"),
        _classes("whole"),
    ),
    "resnet": _net(
        "resnet",
        _input(3, 8, 8),
        _conv("conv", "data", 4, 3, "pad: 1 stride: 2 bias_term: false"),
        _normalized("conv", "conv"),
        _relu("conv"),
        _conv("branch", "conv", 4, 3, "pad: 1 bias_term: false"),
        _normalized("branch", "branch"),
        _layer("Eltwise", "sum", "conv branch", "eltwise_param { operation: SUM coeff: 1 coeff: -0.5 }"),
        _relu("sum"),
        _classes("sum"),
    ),
    "fcn": _net(
        "fcn",
        _input(3, 9, 9),
        _conv("conv", "data", 4, 3, "pad: 4"),
        _relu("conv"),
        _pool("pool", "conv", "MAX", "kernel_size: 2 stride: 2"),
        _conv("up", "pool", 4, 4, "stride: 2 bias_term: false", kind="Deconvolution"),
        _layer("Crop", "cut", "up data", "crop_param { axis: 2 offset: 3 }"),
        _conv("wide", "cut", 3, 3, "dilation: 2 pad: 2"),
        _layer("Eltwise", "most", "wide data", "eltwise_param { operation: MAX }"),
        _layer("Softmax", "pixels", "most"),
        _classes("pixels"),
    ),
    "mobile": _net(
        "mobile",
        _input(4, 9, 9),
        _conv("each", "data", 4, 3, "pad: 1 group: 4"),
        _layer("PReLU", "slope", "each", 'prelu_param { filler { type: "uniform" min: 0.1 max: 0.4 } }'),
        _conv("point", "slope", 6, 1),
        _layer("ReLU6", "six", "point"),
        _layer("ShuffleChannel", "shuffled", "six", "shuffle_channel_param { group: 3 }"),
        _conv("spread", "shuffled", 6, 4, "stride: 2 pad: 1 group: 6", kind="Deconvolution"),
        _layer("ELU", "elu", "spread", "elu_param { alpha: 0.5 }"),
        _pool("pool", "elu", "STOCHASTIC", "kernel_size: 3 stride: 3"),
        _layer("SPP", "levels", "pool", "spp_param { pyramid_height: 2 pool: MAX }"),
        _classes("levels"),
    ),
    "axes": _net(
        "axes",
        _input(4, 3, 6),
        _layer("Slice", "sliced", "data", "slice_param { axis: 1 slice_point: 1 slice_point: 3 }", top="a b c"),
        _layer("Tile", "tiled", "a", "tile_param { axis: 1 tiles: 2 }"),
        _layer("Eltwise", "times", "tiled b", "eltwise_param { operation: PROD }"),
        _layer("Permute", "turned", "times", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
        _layer("Reshape", "shaped", "turned", "reshape_param { shape { dim: 0 dim: 9 dim: -1 } }"),
        _layer("Reduction", "reduced", "shaped", "reduction_param { operation: SUMSQ axis: 2 coeff: 0.5 }"),
        _layer("Power", "powered", "c", "power_param { power: 2 scale: 0.5 shift: 0.25 }"),
        _layer("Exp", "raised", "powered", "exp_param { base: 2 scale: -0.5 }"),
        _layer("Log", "logged", "raised", "log_param { base: 10 shift: 1 }"),
        _layer("Flatten", "flat", "logged"),
        _layer("Concat", "joined", "flat reduced"),
        _layer("Sigmoid", "sigmoid", "joined"),
        _layer("BNLL", "bnll", "sigmoid"),
        _classes("bnll"),
    ),
    "normalised": _net(
        "normalised",
        _input(3, 5, 7),
        _layer("MVN", "mvn", "data", "mvn_param { across_channels: true }"),
        _conv("conv", "mvn", 3, 3),
        _layer("Normalize", "norm", "conv", "norm_param { across_spatial: false scale_filler { value: 3 } }"),
        _layer("AbsVal", "abs", "norm"),
        _layer("Bias", "bias", "abs", 'bias_param { filler { type: "uniform" min: -1 max: 1 } }'),
        _layer("TanH", "tanh", "bias"),
        _layer("Swish", "swish", "tanh"),
        _layer("Clip", "clip", "swish", "clip_param { min: -0.5 max: 0.4 }"),
        _layer("Threshold", "over", "conv", "threshold_param { threshold: 0.2 }"),
        _layer("Scale", "gated", "clip over", "scale_param { axis: 0 }"),
        _layer("Interp", "large", "gated", "interp_param { height: 5 width: 9 }"),
        _layer("Upsample", "twice", "large", "upsample_param { scale: 2 }"),
        _classes("twice"),
    ),
}
"""Name -> prototxt of a deploy net."""

FIXED_BATCH_NET = _net(
    "fixed",
    _input(3, 4, 4),
    _conv("conv", "data", 2, 3),
    _layer("Reshape", "rows", "conv", "reshape_param { shape { dim: 1 dim: -1 } }"),
    _layer("Reshape", "back", "rows", "reshape_param { shape { dim: -1 dim: 8 } }"),
    _classes("back"),
)
"""A net that goes through a blob without a batch axis."""
