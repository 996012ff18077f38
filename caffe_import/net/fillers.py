"""How a new parameter blob is filled. Numpy only.

Same distributions as Caffe, not the same numbers: the generators differ. The bilinear filler is exact.
Source: BVLC Caffe, include/caffe/filler.hpp.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from math import ceil, prod, sqrt

import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError, did_you_mean
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.net.shapes.axes import shape_text
from caffe_import.proto import caffe_pb2

_SEED_MASK = 2**64 - 1


def fill(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float32]:
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
    kind = _FILLERS.get(filler.type)
    if kind is None:
        allowed = ", ".join(sorted(_FILLERS))
        raise _refuse(filler, f"unknown; allowed: {allowed}{did_you_mean(filler.type, _FILLERS)}")
    if filler.sparse != -1 and filler.type != "gaussian":
        raise _refuse(filler, f"sparse={filler.sparse} is allowed with type gaussian only")
    return np.ascontiguousarray(kind(filler, shape, rng), dtype=np.float32)


def initial_vector(net_spec: NetSpec, seed: int) -> Vector:
    """Return the whole parameter vector (n_params,), float32, filled by the net's fillers.

    Every blob has a generator of its own, made from the seed and the blob's name: adding a layer leaves the start
    of the others as it was.

    Args:
        net_spec: Its layout names the owners.
        seed: Any integer; equal seeds give equal vectors.

    Raises:
        NetError: A filler that cannot be used; the message names the blob.
    """
    vector = np.zeros(net_spec.params.n_params, np.float32)
    for entry in net_spec.params.entries:
        spec = net_spec.layer(entry.layer).definition.blobs[entry.index]
        rng = np.random.default_rng([seed & _SEED_MASK, zlib.crc32(entry.name.encode())])
        try:
            blob = fill(spec.filler, spec.shape, rng)
        except NetError as error:
            msg = f'layer "{entry.layer}", blob {entry.index}: {error}'
            raise NetError(msg, layer=entry.layer) from error
        vector[entry.offset : entry.stop] = blob.reshape(-1)
    return vector


def _refuse(filler: caffe_pb2.FillerParameter, finding: str) -> NetError:
    return NetError(f'filler of type "{filler.type}": {finding}')


def _constant(filler: caffe_pb2.FillerParameter, shape: Shape, _: np.random.Generator) -> npt.NDArray[np.float32]:
    return np.full(shape, filler.value, np.float32)


def _uniform(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    if filler.min > filler.max:
        raise _refuse(filler, f"min={filler.min:g} is above max={filler.max:g}")
    return _uniform_between(filler.min, filler.max, shape, rng)


def _uniform_between(low: float, high: float, shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    values: npt.NDArray[np.float32] = rng.random(shape, np.float32) * np.float32(high - low) + np.float32(low)
    return values


def _gaussian(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    if filler.std <= 0:
        raise _refuse(filler, f"std={filler.std:g}: must be above 0")
    if filler.sparse < -1:
        raise _refuse(filler, f"sparse={filler.sparse}: must be -1 (off) or at least 0")
    values = rng.standard_normal(shape, np.float32) * np.float32(filler.std) + np.float32(filler.mean)
    if filler.sparse == -1:
        return values
    _require_axes(filler, shape)
    # Each weight is kept with this probability, so an output has `sparse` inputs only on average, and only where
    # it has as many inputs as there are outputs.
    kept = rng.random(shape, np.float32) < filler.sparse / shape[0]
    return values * kept


def _positive_unitball(
    filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    _require_axes(filler, shape)
    rows = rng.random((shape[0], prod(shape[1:])), np.float32)
    balls: npt.NDArray[np.float32] = rows / rows.sum(axis=1, keepdims=True)
    return balls.reshape(shape)


def _xavier(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010)."""
    reach = sqrt(3.0 / fan(filler, shape))
    return _uniform_between(-reach, reach, shape, rng)


def _msra(filler: caffe_pb2.FillerParameter, shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """He et al., "Delving deep into rectifiers" (2015)."""
    return rng.standard_normal(shape, np.float32) * np.float32(sqrt(2.0 / fan(filler, shape)))


def _bilinear(filler: caffe_pb2.FillerParameter, shape: Shape, _: np.random.Generator) -> npt.NDArray[np.float32]:
    """Interpolation weights for upsampling by a Deconvolution; the same in every plane."""
    if len(shape) != 4 or shape[2] != shape[3]:
        raise _refuse(filler, f"the blob has shape {shape_text(shape)}; expected 4 axes, height equal to width")
    half = ceil(shape[3] / 2)
    center = (shape[3] - 1) / (2 * half)
    ramp = 1 - np.abs(np.arange(shape[3]) / half - center)
    return np.broadcast_to(np.outer(ramp, ramp).astype(np.float32), shape)


def fan(filler: caffe_pb2.FillerParameter, shape: Shape) -> float:
    """Return what xavier and msra divide by: values read per output, written per input, or their mean.

    Raises:
        NetError: The blob has no axes.
    """
    _require_axes(filler, shape)
    count = prod(shape)
    fan_in = count / shape[0]
    fan_out = count / shape[1] if len(shape) > 1 else count
    if filler.variance_norm == caffe_pb2.FillerParameter.AVERAGE:
        return (fan_in + fan_out) / 2
    return fan_out if filler.variance_norm == caffe_pb2.FillerParameter.FAN_OUT else fan_in


def _require_axes(filler: caffe_pb2.FillerParameter, shape: Shape) -> None:
    if not shape:
        raise _refuse(filler, "the blob is a single number; expected at least one axis")


_FILLERS: dict[str, Callable[[caffe_pb2.FillerParameter, Shape, np.random.Generator], npt.NDArray[np.float32]]] = {
    "bilinear": _bilinear,
    "constant": _constant,
    "gaussian": _gaussian,
    "msra": _msra,
    "positive_unitball": _positive_unitball,
    "uniform": _uniform,
    "xavier": _xavier,
}
