import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.evaluate.score_blob import find_score_blob

DATA = """
name: "n"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 4 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 7 } }
"""
ACCURACY = 'layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" }'
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
SOFTMAX = 'layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'


def find(*layers, head=DATA):
    net = build_net_spec(parse_net(head + "".join(layers)), phase="TEST", sample_shapes=lambda _: ((1, 2, 2), ()))
    return find_score_blob(net)


def test_loss_tells_and_splits_are_looked_through():
    found = find(ACCURACY, LOSS)
    assert (found.name, found.n_classes, found.is_probability, found.label) == ("ip", 7, False, "label")
    assert found.found_by == 'layer "loss" (SoftmaxWithLoss)'


def test_accuracy_tells_where_there_is_no_softmax_loss():
    assert find(ACCURACY).found_by == 'layer "acc" (Accuracy)'


def test_accuracy_on_probabilities_is_seen():
    found = find(SOFTMAX, ACCURACY.replace('"ip"', '"prob"'))
    assert (found.name, found.is_probability) == ("prob", True)


def test_net_that_ends_in_softmax():
    found = find(SOFTMAX)
    assert (found.name, found.is_probability, found.label) == ("prob", True, "label")


def test_loss_of_largest_weight_tells():
    aux = LOSS.replace('"loss"', '"aux"').replace("}", "loss_weight: 0.3 }").replace('"ip"', '"ip2"')
    second = DATA.splitlines()[-1].replace('name: "ip"', 'name: "ip2"').replace('top: "ip"', 'top: "ip2"')
    assert find(second, LOSS, aux).name == "ip"


@pytest.mark.parametrize("kind", ["loss", "accuracy"])
def test_ignore_label_comes_from_the_layer_that_told(kind):
    layer = {
        "loss": LOSS.replace("}", "loss_param { ignore_label: 3 } }"),
        "accuracy": ACCURACY.replace("}", "accuracy_param { ignore_label: 3 } }"),
    }[kind]
    assert find(layer).ignore_label == 3
    assert find(LOSS).ignore_label is None


def test_one_by_one_maps_are_one_vector_per_sample():
    head = DATA.replace('"InnerProduct"', '"Convolution"').replace(
        "inner_product_param { num_output: 7 }", "convolution_param { num_output: 7 kernel_size: 2 }"
    )
    assert find(LOSS, head=head).n_classes == 7


def test_scores_per_pixel_are_refused_with_their_shape():
    head = DATA.replace('"InnerProduct"', '"Convolution"').replace(
        "inner_product_param { num_output: 7 }", "convolution_param { num_output: 7 kernel_size: 1 }"
    )
    with pytest.raises(NetError) as caught:
        find(SOFTMAX, head=head)
    assert str(caught.value) == (
        'layer "prob" (Softmax): class scores "prob" have shape (4, 7, 2, 2); allowed: (N, classes), one vector per '
        "sample (a net with a score per pixel is not evaluated)"
    )


def test_computed_labels_are_refused():
    argmax = 'layer { name: "am" type: "ArgMax" bottom: "data" top: "guess" }'
    with pytest.raises(NetError, match=r'its labels "guess" are computed by the net; allowed: a top of a data layer$'):
        find(argmax, ACCURACY.replace('"label"', '"guess"'))


def test_net_without_scores_is_refused():
    with pytest.raises(
        NetError, match=r'^net "n" \(TEST\) has no class scores, its outputs are "ip", "label"; needed: '
    ):
        find()
