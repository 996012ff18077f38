"""Columns of the gradients of convolutions, recorded and forecast; ``python -m``, in a process of its own.

``TF_ENABLE_ONEDNN_OPTS=0`` has TensorFlow compute as on a CPU where TensorFlow leaves oneDNN out. Prints a JSON object:
layer -> largest tensor that a kernel of the gradient allocated, and the forecast, in bytes.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import numpy as np

from caffe_import.net.net_spec import NetSpec
from caffe_import.tf_graph import tensorflow as tf
from caffe_import.tf_graph.builder import build_forward
from tests.reference.layer_check import net_of
from tests.reference.live_bytes import recorded_call

IMAGES: Final = (2, 6, 20, 20)
CASES: Final = {
    "padded": ("Convolution", "num_output: 4 kernel_size: 5 pad: 2", IMAGES),
    "strided": ("Convolution", "num_output: 4 kernel_size: 3 stride: 2", IMAGES),
    "pixels with a stride": ("Convolution", "num_output: 4 kernel_size: 1 stride: 2", IMAGES),
    "pixels": ("Convolution", "num_output: 4 kernel_size: 1", IMAGES),
    "groups": ("Convolution", "num_output: 4 kernel_size: 3 group: 2", IMAGES),
    "a group for each channel": ("Convolution", "num_output: 6 kernel_size: 3 group: 6", IMAGES),
    "dilated": ("Convolution", "num_output: 4 kernel_size: 3 dilation: 2 pad: 1", IMAGES),
    "dilated and strided": ("Convolution", "num_output: 4 kernel_size: 3 dilation: 2 stride: 2", IMAGES),
    "a line": ("Convolution", "num_output: 4 kernel_size: 3", (2, 6, 50)),
    "a volume": ("Convolution", "num_output: 4 kernel_size: 3", (2, 3, 8, 8, 8)),
    "more than the cache": ("Convolution", "num_output: 8 kernel_size: 5 pad: 2", (1, 64, 80, 80)),
    "upsampled": ("Deconvolution", "num_output: 4 kernel_size: 4 stride: 2 pad: 1", IMAGES),
    "upsampled in groups": ("Deconvolution", "num_output: 4 kernel_size: 4 stride: 2 group: 2", IMAGES),
    "upsampled by channel": ("Deconvolution", "num_output: 6 kernel_size: 4 stride: 2 group: 6", IMAGES),
}


def recorded_columns(net: NetSpec) -> int:
    forward = build_forward(net)

    def gradients(vector: tf.Tensor, images: tf.Tensor) -> Any:
        entries = forward.entries(vector)
        top = forward.on_entries(entries, {}, tf.constant([0, 0], tf.int32), {"x0": images}).blobs["top"].caffe
        return tf.gradients(tf.reduce_sum(top * top), [*entries, images])

    arguments = [np.ones(net.params.n_params, np.float32), np.ones(net.inputs["x0"], np.float32)]
    function = tf.function(gradients, autograph=False).get_concrete_function(*arguments)
    recorded = recorded_call(function, arguments, ["/device:CPU:0"] * 2, 1)
    freed = [
        -record.alloc_bytes
        for device in recorded.step_stats.dev_stats
        for node in device.node_stats
        if "BackpropFilter" in node.node_name
        for memory in node.memory
        for record in memory.allocation_records
    ]
    return max(0, *freed) if freed else 0


if __name__ == "__main__":
    columns = {}
    for name, (kind, options, shape) in CASES.items():
        net = net_of(f'type: "{kind}" top: "top" convolution_param {{ {options} }}', [shape])
        columns[name] = (recorded_columns(net), net.layers[-1].traits.column_bytes)
    json.dump(columns, sys.stdout)
