"""The batch size of a net, and the number of samples that the net computes together."""

import pytest
from google.protobuf import text_format

from caffe_import.errors import NetError
from caffe_import.net.batch_size import batch_size_of, net_in_batches, net_of_any_batch, set_batch_size, unit_batch
from caffe_import.net.net_spec import build_net_spec
from caffe_import.proto import caffe_pb2

INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 8 dim: 6 } } }\n'
IP = 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }\n'


def reshape(*dims):
    text = " ".join(f"dim: {dim}" for dim in dims)
    return f'layer {{ name: "x" type: "Reshape" bottom: "data" top: "x" reshape_param {{ shape {{ {text} }} }} }}\n'


def lstm(n_steps, n_streams):
    """An LSTM over steps of the blob x; the marks come from the first value, for equal axes."""
    return (
        'layer { name: "cut" type: "Slice" bottom: "x" top: "first" top: "rest"'
        " slice_param { axis: 2 slice_point: 1 } }\n"
        f'layer {{ name: "cont" type: "Reshape" bottom: "first" top: "cont"'
        f" reshape_param {{ shape {{ dim: {n_steps} dim: {n_streams} }} }} }}\n"
        'layer { name: "h" type: "LSTM" bottom: "rest" bottom: "cont" top: "h" recurrent_param { num_output: 3 } }\n'
    )


BATCH_NORM = 'layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" %s }\n'

NETS = {
    "any": (INPUT + IP, 1),
    "stored_means": (INPUT + BATCH_NORM % "", 1),
    "means_of_the_batch": (INPUT + BATCH_NORM % "batch_norm_param { use_global_stats: false }", 8),
    "fixed": (INPUT + reshape(8, -1), 8),
    "fixed_to_one": (INPUT.replace("dim: 8", "dim: 1") + reshape(1, -1), 1),
    "samples_are_steps": (INPUT + reshape(-1, 1, 6) + lstm(-1, 1), 8),
    "samples_are_streams": (INPUT + reshape(1, -1, 6) + lstm(1, -1), 1),
    "steps_of_fixed_number": (INPUT + reshape(4, -1, 6) + lstm(4, -1), 8),
}


def layers_and_build(text):
    message = text_format.Parse(text, caffe_pb2.NetParameter())
    layers = [layer for layer in message.layer if layer.type == "Input"]
    return layers, lambda: build_net_spec(message, phase="TEST")


@pytest.mark.parametrize("name", NETS)
def test_a_net_is_built_for_the_default_batch_or_the_batch_of_the_net(name):
    text, unit = NETS[name]
    layers, build = layers_and_build(text)
    own_size = batch_size_of(layers[0])
    takes_any = name in ("any", "stored_means")

    def built(batch_size):
        set_batch_size(layers[0], batch_size)
        return build()

    assert (net_of_any_batch(built) is not None) == takes_any
    assert unit_batch(built, own_size) == unit
    set_batch_size(layers[0], own_size)
    net = net_in_batches(layers, build, requested=None, default=50)
    assert net.inputs["data"][0] == (50 if takes_any else own_size)


def test_another_batch_is_built_or_refused_with_the_nets_own():
    layers, build = layers_and_build(NETS["any"][0])
    assert net_in_batches(layers, build, requested=7, default=50).inputs["data"] == (7, 6)
    layers, build = layers_and_build(NETS["fixed"][0])
    assert net_in_batches(layers, build, requested=8, default=50).inputs["data"] == (8, 6)
    layers, build = layers_and_build(NETS["fixed"][0])
    with pytest.raises(NetError, match=r'^batch_size=7: layer "x" .*; the net\'s own batch is 8; leave batch_size out'):
        net_in_batches(layers, build, requested=7, default=50)


def test_a_net_that_cannot_be_built_at_all_says_so_alone():
    layers, build = layers_and_build(INPUT + reshape(5, 5))
    for requested in (None, 7):
        with pytest.raises(NetError, match=r'^layer "x" \(Reshape\)'):
            net_in_batches(layers, build, requested=requested, default=50)
