from __future__ import annotations

import pytest
import tensorflow as tf

from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from caffe_import.tf_graph.out_of_memory import exhausted_layer, wanted_memory

pytestmark = pytest.mark.tf

NET = build_net_spec(
    parse_net(
        """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "fire2/relu" type: "ReLU" bottom: "x" top: "a" }
layer { name: "relu" type: "ReLU" bottom: "a" top: "b" }
"""
    ),
    phase="TRAIN",
)


@pytest.mark.parametrize(
    ("message", "layer"),
    [
        ("OOM when allocating tensor with shape[2]\n\t [[{{node fire2/relu/Relu}}]]", "fire2/relu"),
        ("[[{{node relu/Relu}}]]", "relu"),
        ("Detected at node gradients/fire2/relu/Relu_grad/ReluGrad defined at (most recent call last):", "fire2/relu"),
        ("[[{{node while/body/_1/while/PartitionedCall}}]] [[{{node gradients/relu_grad/mul}}]]", "relu"),
        ("[[{{node while/body/_1/while/mul_47}}]]", None),
    ],
)
def test_the_layer_is_found_by_its_operations_names(message: str, layer: str | None) -> None:
    assert exhausted_layer(tf.errors.ResourceExhaustedError(None, None, message), NET) == layer


def test_what_was_wanted_is_one_line() -> None:
    message = "Graph execution error:\n\nOOM when allocating tensor with shape[7] and type float on CPU:0\nHint: more"
    error = tf.errors.ResourceExhaustedError(None, None, message)
    assert wanted_memory(error) == "OOM when allocating tensor with shape[7] and type float on CPU:0"
    assert wanted_memory(MemoryError()) == "MemoryError"
