"""How a new parameter blob is filled. Numpy only.

Same distributions as Caffe, not the same numbers: the generators differ. The bilinear filler is exact.
Source: BVLC Caffe, include/caffe/filler.hpp.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod, sqrt

import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError, did_you_mean
from caffe_import.net.layer_registry import Shape
from caffe_import.net.shapes.axes import shape_text
from caffe_import.proto import caffe_pb2

_Values = npt.NDArray[np.float32]


def fill(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> _Values:
    """Return a new blob.

    Args:
        filler: Type and its numbers; Caffe's default is constant 0.
        shape: The blob's Caffe shape. Fans follow from it alone: fan_in = count / shape(0),
            fan_out = count / shape(1), so they swap for Deconvolution and for a transposed InnerProduct.
        rng: Advanced by random fillers.

    Returns:
        float32 of ``shape``; the caller owns it.

    Raises:
        NetError: Unknown type, or numbers or a shape that the type cannot use.
    """
    if fault := filler_fault(filler, shape):
        raise NetError(fault)
    return np.ascontiguousarray(_FILLERS[filler.type](filler, shape, rng), dtype=np.float32)


def filler_fault(filler: caffe_pb2.FillerParameter, shape: Shape) -> str:
    """Return why Caffe would abort when the filler fills a blob of this shape; empty if the filler can.

    Example:
        >>> filler_fault(caffe_pb2.FillerParameter(type="gaussian", std=0), (2, 3))
        'filler of type "gaussian": std=0: must be above 0'
        >>> filler_fault(caffe_pb2.FillerParameter(type="gaussian"), (2, 3))
        ''
    """
    finding = _fault_of_any(filler, shape)
    if not finding and filler.type in _FAULTS:
        finding = _FAULTS[filler.type](filler, shape)
    return f'filler of type "{filler.type}": {finding}' if finding else ""


def _fault_of_any(filler: caffe_pb2.FillerParameter, shape: Shape) -> str:
    if filler.type not in _FILLERS:
        return f"unknown; allowed: {', '.join(sorted(_FILLERS))}{did_you_mean(filler.type, _FILLERS)}"
    if filler.sparse != -1 and filler.type != "gaussian":
        return f"sparse={filler.sparse} is allowed with type gaussian only"
    if prod(shape) == 0:
        return f"the blob has shape {shape_text(shape)}, no elements"
    return ""


def _uniform_fault(filler: caffe_pb2.FillerParameter, _: Shape) -> str:
    return "" if filler.min <= filler.max else f"min={filler.min:g} is above max={filler.max:g}"


def _gaussian_fault(filler: caffe_pb2.FillerParameter, shape: Shape) -> str:
    if not filler.std > 0:
        return f"std={filler.std:g}: must be above 0"
    if filler.sparse < -1:
        return f"sparse={filler.sparse}: must be -1 (off) or at least 0"
    return "" if filler.sparse == -1 else _axes_fault(filler, shape)


def _bilinear_fault(_: caffe_pb2.FillerParameter, shape: Shape) -> str:
    if len(shape) == 4 and shape[2] == shape[3]:
        return ""
    return f"the blob has shape {shape_text(shape)}; expected 4 axes, height equal to width"


def _axes_fault(_: caffe_pb2.FillerParameter, shape: Shape) -> str:
    return "" if shape else "the blob is a single number; expected at least one axis"


def _constant(filler: caffe_pb2.FillerParameter, shape: Shape, _: np.random.Generator) -> _Values:
    return np.full(shape, filler.value, np.float32)


def _uniform(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> _Values:
    return _uniform_between(filler.min, filler.max, shape, rng)


def _uniform_between(low: float, high: float, shape: Shape, rng: np.random.Generator) -> _Values:
    values: _Values = rng.random(shape, np.float32) * np.float32(high - low) + np.float32(low)
    return values


def _gaussian(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> _Values:
    values = rng.standard_normal(shape, np.float32) * np.float32(filler.std) + np.float32(filler.mean)
    if filler.sparse == -1:
        return values
    # Each weight is kept with this probability, so an output has `sparse` inputs only on average, and only where
    # the numbers of inputs and outputs are equal.
    mask = rng.random(shape, np.float32) < filler.sparse / shape[0]
    return values * mask


def _positive_unitball(_: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> _Values:
    rows = rng.random((shape[0], prod(shape[1:])), np.float32)
    balls: _Values = rows / rows.sum(axis=1, keepdims=True)
    return balls.reshape(shape)


def _xavier(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> _Values:
    """Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010)."""
    reach = sqrt(3.0 / fan(filler, shape))
    return _uniform_between(-reach, reach, shape, rng)


def _msra(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> _Values:
    """He et al., "Delving deep into rectifiers" (2015)."""
    return rng.standard_normal(shape, np.float32) * np.float32(sqrt(2.0 / fan(filler, shape)))


def _bilinear(filler: caffe_pb2.FillerParameter, shape: Shape, _: np.random.Generator) -> _Values:
    """Interpolation weights for upsampling by a Deconvolution; the same in every plane."""
    half = ceil(shape[3] / 2)
    center = (shape[3] - 1) / (2 * half)
    ramp = 1 - np.abs(np.arange(shape[3]) / half - center)
    return np.broadcast_to(np.outer(ramp, ramp).astype(np.float32), shape)


def fan(filler: caffe_pb2.FillerParameter, shape: Shape) -> float:
    """Return what xavier and msra divide by: values read per output, written per input, or their mean."""
    count = prod(shape)
    fan_in = count / shape[0]
    fan_out = count / shape[1] if len(shape) > 1 else count
    if filler.variance_norm == caffe_pb2.FillerParameter.AVERAGE:
        return (fan_in + fan_out) / 2
    return fan_out if filler.variance_norm == caffe_pb2.FillerParameter.FAN_OUT else fan_in


_FILLERS: dict[str, Callable[[caffe_pb2.FillerParameter, Shape, np.random.Generator], _Values]] = {
    "bilinear": _bilinear,
    "constant": _constant,
    "gaussian": _gaussian,
    "msra": _msra,
    "positive_unitball": _positive_unitball,
    "uniform": _uniform,
    "xavier": _xavier,
}

_FAULTS: dict[str, Callable[[caffe_pb2.FillerParameter, Shape], str]] = {
    "bilinear": _bilinear_fault,
    "gaussian": _gaussian_fault,
    "msra": _axes_fault,
    "positive_unitball": _axes_fault,
    "uniform": _uniform_fault,
    "xavier": _axes_fault,
}
