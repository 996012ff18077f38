"""Memory by layer: what the backward pass keeps, counted by hand."""

from __future__ import annotations

from caffe_import.devices.layer_memory import layer_rows
from tests.reference.parsed_net import net_of

INPUT = 'layer { name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 }'
INPUT += " shape { dim: 2 } } }\n"
CONVOLUTION = """
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param { num_output: 5 kernel_size: 3 } }
"""
PRODUCT_AND_LOSS = """
layer { name: "ip" type: "InnerProduct" bottom: "%s" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def kept_bytes(text: str) -> dict[str, int]:
    """Return layer -> kept bytes, without layers that keep nothing."""
    return {row.layer: row.activation_bytes for row in layer_rows(net_of(text)) if row.activation_bytes}


def test_an_in_place_relu_keeps_its_top_and_the_convolution_the_turned_image() -> None:
    relu = 'layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }'
    image, conv = 4 * 2 * 3 * 8 * 8, 4 * 2 * 5 * 6 * 6
    # The product reads the image in Caffe's order: another copy.
    assert kept_bytes(INPUT + CONVOLUTION + relu + PRODUCT_AND_LOSS % "conv") == {
        "conv": image,
        "relu": conv,
        "ip": conv,
        "loss": 4 * 2 * 4,
    }


def test_split_flatten_and_a_sum_keep_nothing() -> None:
    layers = """
    layer { name: "flat" type: "Flatten" bottom: "conv" top: "flat" }
    layer { name: "sum" type: "Eltwise" bottom: "flat" bottom: "flat" top: "sum" }
    """
    conv = 4 * 2 * 5 * 6 * 6
    kept_by_layer = kept_bytes(INPUT + CONVOLUTION + layers + PRODUCT_AND_LOSS % "sum")
    assert kept_by_layer == {"conv": 4 * 2 * 3 * 8 * 8, "sum": conv, "loss": 4 * 2 * 4}


def test_dropout_keeps_a_byte_per_value() -> None:
    dropout = 'layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }'
    conv = 2 * 5 * 6 * 6
    kept_by_layer = kept_bytes(INPUT + CONVOLUTION + dropout + PRODUCT_AND_LOSS % "conv")
    assert kept_by_layer == {"conv": 4 * 2 * 3 * 8 * 8, "drop": conv, "ip": 4 * conv, "loss": 4 * 2 * 4}


def test_parameters_count_at_their_owner() -> None:
    rows = layer_rows(net_of(INPUT + CONVOLUTION + PRODUCT_AND_LOSS % "conv"))
    assert {row.layer: row.param_bytes for row in rows if row.param_bytes} == {
        "conv": 4 * (5 * 3 * 3 * 3 + 5),
        "ip": 4 * (4 * 5 * 6 * 6 + 4),
    }
