import numpy as np

from caffe_import.files.prototxt import parse_net
from caffe_import.net.batch_size import net_of_any_batch
from caffe_import.net.net_spec import build_net_spec
from caffe_import.proto import caffe_pb2
from deepspark_ops.evaluate.tasks.choice import choose_tasks
from deepspark_ops.export.deploy_net import build_deploy_net, deploy_params, opencv_names

NET = """
name: "n"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 4 } }
layer { name: "unused" type: "InnerProduct" bottom: "data" top: "unused" inner_product_param { num_output: 2 }
  param { name: "shared" } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 }
  param { name: "shared" } include { phase: TEST } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
layer { name: "prob" type: "InnerProduct" bottom: "ip" top: "prob" inner_product_param { num_output: 3 } }
layer { name: "acc" type: "Accuracy" bottom: "prob" bottom: "label" top: "acc" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "prob" bottom: "label" top: "loss" }
layer { name: "quiet" type: "Silence" bottom: "unused" }
"""


def shapes(_):
    return ((1, 2, 2), ())


def deploy_of(message, net):
    """Return the deploy net and the blob of its single result."""
    deploy_net = build_deploy_net(message, net, choose_tasks(net), {"data", "label"})
    assert [(model_input.blob, model_input.source, model_input.part) for model_input in deploy_net.inputs] == [
        ("data", "data", None)
    ]
    (blob,) = deploy_net.outputs.values()
    return deploy_net.message, blob


def test_only_what_the_scores_need_stays_in_its_order():
    message = parse_net(NET)
    net = build_net_spec(message, phase="TEST", sample_shapes=shapes)
    deploy, probability = deploy_of(message, net)
    assert [layer.name for layer in deploy.layer] == ["data", "ip", "relu", "prob", "prob2"]
    assert probability == "prob2"  # "prob" is taken by a layer of the user
    assert list(deploy.layer[0].input_param.shape[0].dim) == [1, 1, 2, 2]
    assert not deploy.layer[1].include
    assert list(deploy.layer[1].bottom) == ["data"]  # without the automatic Split


def test_shared_blob_finds_its_values_when_its_owner_is_cut_off():
    message = parse_net(NET)
    net = build_net_spec(message, phase="TEST", sample_shapes=shapes)
    deploy, _ = deploy_of(message, net)
    layout = build_net_spec(deploy, phase="TEST").params
    params = np.arange(net.params.n_params, dtype=np.float32)
    vector = deploy_params(net.params, params, layout)
    assert net.params.entry("ip", 0).layer == "unused"
    views, own_views = net.params.views(params), layout.views(vector)
    np.testing.assert_array_equal(own_views["ip[0]"], views["unused[0]"])
    np.testing.assert_array_equal(own_views["prob[1]"], views["prob[1]"])


def test_probabilities_need_no_softmax():
    text = NET[: NET.index('layer { name: "acc"')].replace('"prob"', '"fc"')
    message = parse_net(text + 'layer { name: "p" type: "Softmax" bottom: "fc" top: "p" }')
    net = build_net_spec(message, phase="TEST", sample_shapes=shapes)
    deploy, probability = deploy_of(message, net)
    assert probability == "p"
    assert deploy.layer[-1].name == "p"


def net_builder(text):
    def of_size(n):
        return build_net_spec(parse_net(text.replace("BATCH", str(n))), phase="TEST")

    return of_size


HEAD = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: BATCH dim: 3 dim: 4 dim: 4 } } }'


def test_batch_axis_becomes_free_and_nothing_else():
    text = (
        HEAD
        + """
    layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 2 kernel_size: 3 } }
    layer { name: "f" type: "Flatten" bottom: "c" top: "f" }"""
    )
    net = net_of_any_batch(net_builder(text))
    assert [layer.definition.top_shapes for layer in net.layers] == [((-1, 3, 4, 4),), ((-1, 2, 2, 2),), ((-1, 8),)]
    assert net.layers[1].bottom_shapes == ((-1, 3, 4, 4),)


def test_batch_on_another_axis_is_refused():
    text = (
        HEAD
        + """
    layer { name: "r" type: "Reshape" bottom: "data" top: "r"
      reshape_param { shape { dim: 4 dim: -1 dim: 3 dim: 4 } } }"""
    )
    assert net_of_any_batch(net_builder(text)) is None


def test_opencv_is_asked_for_the_layer_that_writes_a_blob_last() -> None:
    deploy = caffe_pb2.NetParameter()
    for name, top in (("ip", "answer"), ("relu", "answer"), ("prob", "prob")):
        deploy.layer.add(name=name).top.append(top)
    assert opencv_names(deploy, ["prob", "answer"]) == {"prob": "prob", "answer": "relu"}
