"""A reshaped net is the net that is built for inputs of the other shape, with the same parameters."""

from dataclasses import replace

import pytest

from caffe_import.errors import NetError
from caffe_import.net.reshaped_net import reshaped
from tests.reference import slow_fcn
from tests.reference.parsed_net import net_of

INPUT = """
layer {{ name: "in" type: "Input" top: "data" top: "label"
  input_param {{ shape {{ dim: 1 dim: 3 dim: {0} dim: {1} }} shape {{ dim: 1 dim: 1 dim: {0} dim: {1} }} }} }}
"""
GLOBAL = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "split" type: "Concat" bottom: "conv" bottom: "conv" top: "both" }
layer { name: "bn" type: "BatchNorm" bottom: "both" top: "both" }
layer { name: "pool" type: "Pooling" bottom: "both" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "mean" type: "Reduction" bottom: "label" reduction_param { operation: MEAN } top: "mean" }
"""


@pytest.mark.parametrize("layers", [slow_fcn.SHARED_LAYERS, GLOBAL])
def test_reshaped_net_is_the_net_built_for_the_shape(layers):
    net = net_of(INPUT.format(9, 12) + layers)
    for size in ((7, 6), (12, 9), (30, 5), (9, 12)):
        built = net_of(INPUT.format(*size) + layers)
        other = reshaped(net, {"data": (1, 3, *size), "label": (1, 1, *size)})
        assert other.params.entries == net.params.entries == built.params.entries
        assert (other.inputs, other.outputs, other.blob_shapes) == (built.inputs, built.outputs, built.blob_shapes)
        for layer, built_layer in zip(other.layers, built.layers, strict=True):
            assert layer.bottom_shapes == built_layer.bottom_shapes
            # Each definition has functions of its own in its traits.
            assert replace(layer.definition, traits=None) == replace(built_layer.definition, traits=None)
            assert (layer.propagate_down, layer.loss_weights) == (built_layer.propagate_down, built_layer.loss_weights)


def test_an_input_that_is_not_given_keeps_its_shape():
    net = net_of(INPUT.format(9, 12) + GLOBAL)
    other = reshaped(net, {"data": (1, 3, 8, 8)})
    assert other.inputs == {"data": (1, 3, 8, 8), "label": (1, 1, 9, 12)}


def test_parameters_that_depend_on_the_size_are_refused_by_the_layers_name():
    net = net_of(
        INPUT.format(9, 12)
        + 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }'
    )
    message = (
        r'layer "ip" \(InnerProduct\): its parameters have shapes \(2, 324\) and \(2,\), bottoms of shape'
        r" \(1, 3, 8, 12\) need \(2, 288\) and \(2,\); allowed: samples of one size, or layers whose parameters do not"
        r' depend on the size .*; the inputs of this pass: "data" \(1, 3, 8, 12\)$'
    )
    with pytest.raises(NetError, match=message) as raised:
        reshaped(net, {"data": (1, 3, 8, 12)})
    assert raised.value.layer == "ip"


def test_blobs_that_no_longer_fit_are_refused_by_the_layers_name():
    net = net_of(INPUT.format(9, 12) + slow_fcn.SHARED_LAYERS)
    with pytest.raises(NetError, match=r'^layer "loss" .*the inputs of this pass: "data" \(1, 3, 8, 8\), "label"'):
        reshaped(net, {"data": (1, 3, 8, 8), "label": (1, 1, 8, 9)})


def test_values_kept_from_pass_to_pass_are_refused():
    net = net_of("""
    layer { name: "in" type: "Input" top: "x" top: "cont"
      input_param { shape { dim: 4 dim: 2 dim: 3 } shape { dim: 4 dim: 2 } } }
    layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h" recurrent_param { num_output: 5 } }
    """)
    with pytest.raises(NetError, match=r'^layer "lstm" \(LSTM\): keeps values from pass to pass'):
        reshaped(net, {"x": (4, 3, 3), "cont": (4, 3)})
