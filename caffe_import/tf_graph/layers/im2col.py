"""Im2col in TensorFlow: one strided slice for each tap of the kernel, any number of spatial axes."""

from __future__ import annotations

from itertools import product

import tensorflow as tf

from caffe_import.net.shapes.windows import Window
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Im2col")
def emit_im2col(request: EmitRequest) -> Emission:
    """Pad, slice each tap, stack the taps behind their channel."""
    window = request.layer.definition.options
    assert isinstance(window, Window)
    shape = request.layer.bottom_shapes[0]
    n_outer = window.channel_axis + 1
    positions = window.slid_over(shape[n_outer:])
    padded = tf.pad(request.bottoms[0].caffe, [(0, 0)] * n_outer + [(pad, pad) for pad in window.pad])
    taps = [
        padded[(slice(None),) * n_outer + _tap_slices(tap, window, positions)]
        for tap in product(*(range(extent) for extent in window.kernel))
    ]
    top = tf.reshape(tf.stack(taps, n_outer), (-1, *request.layer.definition.top_shapes[0][1:]))
    return Emission((Blob.from_caffe(top),))


def _tap_slices(tap: tuple[int, ...], window: Window, positions: tuple[int, ...]) -> tuple[slice, ...]:
    axes = zip(tap, window.dilation, window.stride, positions, strict=True)
    return tuple(slice(t * d, t * d + (count - 1) * s + 1, s) for t, d, s, count in axes)
