"""Pooling: MAX, AVE and STOCHASTIC over windows of an image.

Source: BVLC Caffe, src/caffe/layers/pooling_layer.cpp (CPU) and pooling_layer.cu (STOCHASTIC).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import Arithmetic, LayerTraits, per_top_value
from caffe_import.net.shapes.axes import require_rank, shape_text
from caffe_import.net.shapes.pooled_windows import (
    Method,
    Pair,
    PoolingOptions,
    pooled_size,
    require_windows_inside,
)
from caffe_import.proto import caffe_pb2

_TRAITS = LayerTraits(
    arithmetic="float32", axis_order="channels last", gradient_keeps="bottoms", reads_overwritten=False
)


@layer_type(
    "Pooling",
    bottoms=(1, 1),
    tops=(1, 2),
    traits=_TRAITS,
)
def define_pooling(request: LayerRequest) -> LayerDefinition:
    """Tops: (N, C, pooled_h, pooled_w), rounded up unless round_mode is FLOOR; for MAX also the mask.

    ``ceil_mode`` of the forks says the same: true is CEIL, false is FLOOR.
    """
    param = request.message.pooling_param
    shape = require_rank(request, 0, 4, axes="4 axes (N, C, H, W)")
    size = (shape[2], shape[3])
    has_mask = len(request.message.top) == 2
    method = cast(Method, caffe_pb2.PoolingParameter.PoolMethod.Name(param.pool))
    if has_mask and method != "MAX":
        finding = f"has 2 tops; allowed: 1 with pool: {method}, a second one (the mask) only with pool: MAX"
        raise request.refuse(finding)
    kernel, stride, pad = _resolve(request, param, size)
    options = PoolingOptions(method, kernel, stride, pad, param.global_pooling, has_mask)
    pooled = pooled_size(options, size, is_ceil=_is_ceil(request, param))
    require_windows_inside(request, options, size, pooled)
    return LayerDefinition(
        top_shapes=((shape[0], shape[1], *pooled),) * len(request.message.top),
        options=options,
        notes=_notes(options, size, pooled),
        traits=_traits(options),
    )


def _traits(options: PoolingOptions) -> LayerTraits:
    if options.method == "AVE":
        return replace(_TRAITS, gradient_keeps="nothing")
    if options.method == "STOCHASTIC":
        return _TRAITS
    # The mask holds positions, which 16 bits cannot. oneDNN's kernel notes where in its window each maximum was.
    arithmetic: Arithmetic = "float32" if options.has_mask else "kept"
    return replace(_TRAITS, arithmetic=arithmetic, gradient_keeps="bottoms and tops", kept_bytes=per_top_value(1))


def _is_ceil(request: LayerRequest, param: caffe_pb2.PoolingParameter) -> bool:
    by_round_mode = param.round_mode == caffe_pb2.PoolingParameter.CEIL
    if not param.HasField("ceil_mode"):
        return by_round_mode
    if param.HasField("round_mode") and by_round_mode != param.ceil_mode:
        round_mode = caffe_pb2.PoolingParameter.RoundMode.Name(param.round_mode)
        finding = f"round_mode: {round_mode} and ceil_mode: {str(param.ceil_mode).lower()} contradict; give one of both"
        raise request.refuse(finding)
    return param.ceil_mode


def _resolve(request: LayerRequest, param: caffe_pb2.PoolingParameter, size: Pair) -> tuple[Pair, Pair, Pair]:
    stride = _pair(request, param, "stride")
    pad = _pair(request, param, "pad")
    if param.global_pooling:
        if param.HasField("kernel_size") or param.HasField("kernel_h") or param.HasField("kernel_w"):
            finding = "has global_pooling and a kernel size; allowed: one of both"
            raise request.refuse(finding)
        if pad != (0, 0) or stride != (1, 1):
            finding = f"global_pooling takes no pad and stride 1; found pad {pad}, stride {stride}"
            raise request.refuse(finding)
        return size, stride, pad
    kernel = _kernel(request, param)
    if min(kernel) < 1 or min(stride) < 1:
        finding = f"kernel {kernel}, stride {stride}: every value must be at least 1"
        raise request.refuse(finding)
    if pad != (0, 0):
        if param.pool == caffe_pb2.PoolingParameter.STOCHASTIC:
            finding = f"pad {pad} with pool: STOCHASTIC; padding is allowed for MAX and AVE only"
            raise request.refuse(finding)
        if pad[0] >= kernel[0] or pad[1] >= kernel[1]:
            finding = f"pad {pad} must be smaller than kernel {kernel}"
            raise request.refuse(finding)
    return kernel, stride, pad


def _kernel(request: LayerRequest, param: caffe_pb2.PoolingParameter) -> Pair:
    has_pair = param.HasField("kernel_h") and param.HasField("kernel_w")
    if param.HasField("kernel_size") == has_pair:
        finding = "allowed: either kernel_size, or kernel_h and kernel_w, or global_pooling: true"
        raise request.refuse(finding)
    return (param.kernel_h, param.kernel_w) if has_pair else (param.kernel_size, param.kernel_size)


def _pair(request: LayerRequest, param: caffe_pb2.PoolingParameter, stem: str) -> Pair:
    has_h, has_w = param.HasField(f"{stem}_h"), param.HasField(f"{stem}_w")
    if has_h != has_w or (has_h and param.HasField(stem)):
        finding = f"allowed: either {stem}, or both {stem}_h and {stem}_w"
        raise request.refuse(finding)
    if has_h:
        return getattr(param, f"{stem}_h"), getattr(param, f"{stem}_w")
    return getattr(param, stem), getattr(param, stem)


def _notes(options: PoolingOptions, size: Pair, pooled: Pair) -> tuple[str, ...]:
    overhang = [(pooled[i] - 1) * options.stride[i] + options.kernel[i] - size[i] - 2 * options.pad[i] for i in (0, 1)]
    if max(overhang) <= 0:
        return ()
    note = f"rounding up: from {shape_text(size)} to {shape_text(pooled)}; the last windows are cut at the border"
    return (note + ", divided by the part inside the image and its padding",) if options.method == "AVE" else (note,)
