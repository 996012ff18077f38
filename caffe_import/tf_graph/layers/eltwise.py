"""How TensorFlow computes Eltwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul

import tensorflow as tf

from caffe_import.layers.eltwise import EltwiseOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.passes.in_place import Memory, memory_gradient


@emitter("Eltwise")
def emit_eltwise(request: EmitRequest) -> Emission:
    """Combine channels-last if any bottom has that order."""
    options = request.layer.definition.options
    assert isinstance(options, EltwiseOptions)
    is_channels_last = any(bottom.is_channels_last for bottom in request.bottoms)
    inputs = [bottom.channels_last if is_channels_last else bottom.caffe for bottom in request.bottoms]
    combine: dict[str, Callable[[], tf.Tensor]] = {
        "SUM": lambda: _weighted_sum(inputs, options.coefficients),
        "PROD": lambda: reduce(mul, inputs),
        "MAX": lambda: _maximum(inputs),
    }
    outputs = combine[options.operation]()
    return Emission((Blob.from_channels_last(outputs) if is_channels_last else Blob.from_caffe(outputs),))


def _weighted_sum(inputs: Sequence[tf.Tensor], coefficients: Sequence[float]) -> tf.Tensor:
    return tf.add_n([x if c == 1 else c * x for x, c in zip(inputs, coefficients, strict=True)])


def _maximum(inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Send the gradient to one input, as Caffe: at a tie to the second of two, to a later input only if larger.

    ``tf.maximum`` would split a tie's gradient otherwise.
    """
    first, second, *later = inputs
    best = tf.where(first > second, first, second)
    for challenger in later:
        best = tf.where(challenger > best, challenger, best)
    return best


@memory_gradient("Eltwise", own_value_is_enough=False, always=True)
def _product_from_memory(memory: Memory) -> tf.Tensor:
    # 0 / 0 is NaN there too.
    return memory.top / memory.bottom * memory.gradient
