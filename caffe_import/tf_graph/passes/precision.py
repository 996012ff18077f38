"""16-bit arithmetic in the graph: what goes into a layer and comes out of it is cast as ``precision_types`` says.

A 16-bit product is, on every device: inputs and parameters rounded to 16 bits, float32 sums, the result rounded to 16
bits; its gradients likewise. GPUs compute so, and CPUs in bfloat16 through oneDNN. TensorFlow's other CPU kernels add
up in 16 bits: a sum stops growing at 256 times the terms, and a gradient over a batch's pixels comes out half as large
or worse. There float32 kernels make the same numbers from rounded values, without saving time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import tensorflow as tf

from caffe_import.devices.compute_plan import Precision
from caffe_import.devices.precision_types import arithmetic_of
from caffe_import.tf_graph.emitters import Emission, Emit, EmitRequest

_PROBE_BOUND = 3.0
"""Largest error of a kernel that adds up in float32, in roundings of the largest value; up to 2 were seen."""


@dataclass(frozen=True)
class Arithmetic:
    """How a net's 16-bit layers compute on its devices.

    Attributes:
        dtype: tf.bfloat16 or tf.float16.
        has_kernels: Do the devices' own 16-bit kernels add up in float32?
    """

    dtype: tf.DType
    has_kernels: bool

    def emit(self, emit: Emit, request: EmitRequest) -> Emission:
        """Return what ``emit`` makes of the request in the layer's arithmetic; ``request`` may mix dtypes."""
        kind = arithmetic_of(request.layer)
        if kind == "16 bit":
            return self._product(emit, request)
        dtypes = {bottom.dtype for bottom in request.bottoms}
        if kind == "kept" and dtypes == {self.dtype}:
            return emit(request)
        return emit(replace(request, bottoms=[bottom.as_dtype(tf.float32) for bottom in request.bottoms]))

    def _product(self, emit: Emit, request: EmitRequest) -> Emission:
        rounded = [bottom.as_dtype(self.dtype) for bottom in request.bottoms]
        params = [tf.cast(param, self.dtype) for param in request.params]
        if self.has_kernels:
            return emit(replace(request, bottoms=rounded, params=params))
        rounded_request = replace(
            request,
            bottoms=[bottom.as_dtype(tf.float32) for bottom in rounded],
            params=[tf.cast(param, tf.float32) for param in params],
        )
        # Left as float32, since these devices are slow in 16 bits: what keeps its values loses nothing by it.
        tops = (top.as_dtype(self.dtype).as_dtype(tf.float32) for top in emit(rounded_request).tops)
        return Emission(tuple(tops))


def arithmetic_on(precision: Precision, devices: Sequence[str]) -> Arithmetic | None:
    """Return the arithmetic of a plan's ``precision``; None for float32.

    Args:
        precision: The plan's.
        devices: TensorFlow's names of the devices; empty: its own choice. The first stands for all.
    """
    if precision == "float32":
        return None
    dtype = tf.as_dtype(precision)
    default = "/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:0"
    return Arithmetic(dtype, adds_up_in_float32(dtype, devices[0] if devices else default))


@cache
def adds_up_in_float32(dtype: tf.DType, device: str) -> bool:
    """Return whether the device's 16-bit kernels add up in float32. Found by trying each kind, once in a process."""
    rounding = 2.0**-9 if dtype == tf.bfloat16 else 2.0**-12
    with tf.device(device):
        # Arguments, since TensorFlow computes what follows from constants on the CPU.
        values = [[tf.random.stateless_uniform(shape, (1, 2)) for shape in shapes] for _, shapes in _PROBES]
        rounded = tf.nest.map_structure(lambda value: tf.cast(value, dtype), values)
        errors = tf.function(_errors, autograph=False)(rounded)
    return max(map(float, errors)) <= _PROBE_BOUND * rounding


_Kernel = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
_IMAGES = (8, 32, 32, 4)
_PROBES: Sequence[tuple[_Kernel, tuple[tuple[int, ...], tuple[int, ...]]]] = (
    (lambda x, k: tf.nn.conv2d(x, k, 2, "VALID"), (_IMAGES, (3, 3, 4, 6))),
    (lambda x, k: tf.nn.depthwise_conv2d(x, k, (1, 1, 1, 1), "SAME"), (_IMAGES, (3, 3, 4, 1))),
    (lambda x, k: tf.nn.conv3d(x, k, (1, 1, 1, 1, 1), "VALID"), ((2, 16, 16, 16, 4), (3, 3, 3, 4, 6))),
    (lambda x, k: tf.einsum("pgi,goi->pgo", x, k), ((8000, 2, 4), (2, 3, 4))),
    (lambda x, k: tf.matmul(x, k, transpose_b=True), ((64, 4000), (32, 4000))),
)


def _errors(values: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
    """Return for each probe the largest error of its result and gradients, each as a share of the largest value."""
    errors = []
    for (kernel, _), inputs in zip(_PROBES, values, strict=True):
        exact = _passes(kernel, [tf.cast(value, tf.float32) for value in inputs])
        errors += [
            tf.reduce_max(tf.abs(tf.cast(kernel_values, tf.float32) - exact_values))
            / tf.reduce_max(tf.abs(exact_values))
            for kernel_values, exact_values in zip(_passes(kernel, inputs), exact, strict=True)
        ]
    return errors


def _passes(kernel: _Kernel, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    outputs = kernel(*inputs) / 64  # float16 ends at 65504
    return [outputs, *tf.gradients(outputs, inputs)]
