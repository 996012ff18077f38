"""Which layers compute in 16 bits."""

from __future__ import annotations

from caffe_import.devices.precision_types import arithmetic_of, layers_in_16_bit
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec

NET = build_net_spec(
    parse_net("""
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
    layer { name: "conv" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 1 } }
    layer { name: "max" type: "Pooling" bottom: "c" top: "m" pooling_param { kernel_size: 2 } }
    layer { name: "where" type: "Pooling" bottom: "c" top: "v" top: "mask" pooling_param { kernel_size: 2 } }
    layer { name: "ave" type: "Pooling" bottom: "c" top: "a" pooling_param { pool: AVE kernel_size: 2 } }
    layer { name: "any" type: "Pooling" bottom: "c" top: "s" pooling_param { pool: STOCHASTIC kernel_size: 2 } }
    layer { name: "largest" type: "Eltwise" bottom: "m" bottom: "v" top: "l" eltwise_param { operation: MAX } }
    layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "s" top: "u" }
    layer { name: "bn" type: "BatchNorm" bottom: "u" top: "b" }
    layer { name: "ip" type: "InnerProduct" bottom: "l" top: "i" inner_product_param { num_output: 2 } }
    """),
    phase="TRAIN",
)


def test_options_decide_where_a_type_does_several_things() -> None:
    arithmetic = {layer.name: arithmetic_of(layer) for layer in NET.layers if layer.type != "Split"}
    assert arithmetic == {
        "in": "float32",
        "conv": "16 bit",
        "max": "kept",
        "where": "float32",
        "ave": "float32",
        "any": "float32",
        "largest": "kept",
        "sum": "float32",
        "bn": "float32",
        "ip": "16 bit",
    }
    assert layers_in_16_bit(NET) == ("conv", "ip")
