import pytest

from caffe_import.files.prototxt import parse_net, read_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.preflight.layer_notes import ignored_options, layer_notes
from tests.paths import FIXTURES

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 dim: 6 dim: 6 } } }'


def notes(layer, phase="TRAIN", sample=(3, 8, 8)):
    head = "" if "Data" in layer else INPUT
    net = build_net_spec(parse_net(head + layer), phase=phase, sample_shapes=lambda _: (sample, ()))
    return " | ".join(layer_notes(net.layers[-1], phase))


def data(transform="", kind="Data"):
    return (
        f'layer {{ name: "d" type: "{kind}" top: "d" top: "l" transform_param {{ {transform} }} '
        'data_param { source: "s" batch_size: 2 } image_data_param { source: "s" batch_size: 2 } }'
    )


def single_layer(kind, options="", param=""):
    return f'layer {{ name: "a" type: "{kind}" bottom: "x" top: "y" {options} {param} }}'


@pytest.mark.parametrize(
    ("layer", "note"),
    [
        (data(), "channels are in BGR order"),
        (data(), "no mean is subtracted"),
        (data('mean_file: "m"'), "mean image of the size before the crop"),
        (data("mean_value: 104 mean_value: 117 mean_value: 123"), "104, 117, 123 is subtracted, one value per channel"),
        (data("mean_value: 9 scale: 0.5"), "scale 0.5 multiplies after the mean is subtracted"),
        (
            single_layer("Dropout", "dropout_param { dropout_ratio: 0.75 }"),
            "0.75 is the share dropped; what stays is multiplied by 4",
        ),
        (
            single_layer("LRN", "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }"),
            "divided by local_size squared (9)",
        ),
        (single_layer("LRN"), "alpha 1 is divided by local_size 5"),
        (single_layer("BatchNorm"), "keeps running sums with moving_average_fraction 0.999"),
        (
            single_layer("BatchNorm", "batch_norm_param { use_global_stats: true }"),
            "the stored statistics are used and never move",
        ),
        (
            single_layer("InnerProduct", "inner_product_param { num_output: 2 }"),
            "implicit lr_mult: 1 and decay_mult: 1 for blob 0, 1",
        ),
        (
            single_layer("InnerProduct", "inner_product_param { num_output: 2 }", "param { lr_mult: 1 }"),
            "implicit lr_mult: 1 and decay_mult: 1 for blob 1;",
        ),
        (single_layer("Pooling", "pooling_param { kernel_size: 3 stride: 2 }", ""), "rounding up"),
    ],
)
def test_trap_is_said(layer, note):
    assert note in notes(layer)


def test_tests_drop_nothing_and_learn_nothing():
    assert notes(single_layer("Dropout"), "TEST") == ""
    assert notes(single_layer("InnerProduct", "inner_product_param { num_output: 2 }"), "TEST") == ""
    assert notes(single_layer("BatchNorm"), "TEST") == ""
    assert notes(single_layer("BatchNorm", "batch_norm_param { use_global_stats: true }"), "TEST") == ""


def test_a_batch_norm_of_a_test_net_that_uses_the_batch_is_said():
    layer = single_layer("BatchNorm", "batch_norm_param { use_global_stats: false }")
    assert "a sample's answer depends on the batch size and on the other samples" in notes(layer, "TEST")


def test_gray_data_have_no_order_of_channels():
    assert "BGR" not in notes(data(), sample=(1, 8, 8))


def test_what_is_said_in_the_file_is_no_trap():
    params = "param { lr_mult: 1 } param { lr_mult: 2 }"
    assert notes(single_layer("InnerProduct", "inner_product_param { num_output: 2 }", params)) == ""


def test_options_of_another_layer_type_are_noted_as_ignored():
    convolution = "convolution_param { num_output: 2 kernel_size: 3 }"
    inner_product = notes(single_layer("InnerProduct", "inner_product_param { num_output: 2 }", convolution))
    assert "convolution_param is of layer type Convolution; Caffe ignores the message in InnerProduct" in inner_product
    assert "data_param is of layer type Data; Caffe ignores the message in ImageData" in notes(data(kind="ImageData"))


@pytest.mark.parametrize("folder", ["layers", "nets"])
def test_no_option_of_a_recorded_net_is_noted_as_ignored(folder):
    """Caffe read the options of these nets, and their outputs were recorded."""
    nets = [read_net(path) for path in sorted((FIXTURES / "caffe" / folder).rglob("*.prototxt"))]
    assert len(nets) > 5
    assert [note for net in nets for layer in net.layer for note in ignored_options(layer)] == []
