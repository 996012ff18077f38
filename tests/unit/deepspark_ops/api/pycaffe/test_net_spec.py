"""A net written in Python is the prototxt that Caffe's notebooks print."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

import deepspark_ops as ds
import deepspark_ops.api.pycaffe as caffe
from caffe_import.proto import caffe_pb2
from deepspark_ops.api.pycaffe import NetSpec, to_proto
from deepspark_ops.api.pycaffe import layers as L
from deepspark_ops.api.pycaffe import params as P

LENET = """
layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.00392156862745098 }
  data_param { source: "mnist/train" batch_size: 64 backend: LMDB } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "fc1" type: "InnerProduct" bottom: "pool1" top: "fc1"
  param { lr_mult: 1 } param { lr_mult: 2 }
  inner_product_param { num_output: 500 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "fc1" top: "fc1" }
layer { name: "score" type: "InnerProduct" bottom: "fc1" top: "score"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }
"""


def lenet() -> NetSpec:
    n = NetSpec()
    n.data, n.label = L.Data(
        batch_size=64, backend=P.Data.LMDB, source="mnist/train", transform_param=dict(scale=1.0 / 255), ntop=2
    )
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.fc1 = L.InnerProduct(
        n.pool1, num_output=500, weight_filler=dict(type="xavier"), param=[dict(lr_mult=1), dict(lr_mult=2)]
    )
    n.relu1 = L.ReLU(n.fc1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n


def test_lenet_of_the_notebook() -> None:
    expected = text_format.Parse(LENET, caffe_pb2.NetParameter())
    assert text_format.MessageToString(lenet().to_proto()) == text_format.MessageToString(expected)


def test_outputs_without_names_get_some() -> None:
    data = L.Input(input_param=dict(shape=[dict(dim=[1, 2])]))
    net = to_proto(L.InnerProduct(L.InnerProduct(data, num_output=3), num_output=4))
    assert [(layer.name, list(layer.bottom), list(layer.top)) for layer in net.layer] == [
        ("Input1", [], ["Input1"]),
        ("InnerProduct1", ["Input1"], ["InnerProduct1"]),
        ("InnerProduct2", ["InnerProduct1"], ["InnerProduct2"]),
    ]
    assert [layer.inner_product_param.num_output for layer in net.layer[1:]] == [3, 4]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n: L.Convolution(n.data, kernel=5), "Convolution: kernel: no such option; allowed: .*kernel_size"),
        (lambda n: L.Convolution(n.data, num_output="many"), "ConvolutionParameter.num_output='many'"),
        (lambda n: L.ReLU(n.data, lr=1), "ReLU: lr: no such option; allowed: engine, negative_slope"),
    ],
)
def test_wrong_option_is_named_with_those_allowed(make: object, message: str) -> None:
    n = NetSpec()
    n.data = L.Input(input_param=dict(shape=[dict(dim=[1, 2])]))
    n.bad = make(n)  # type: ignore[operator]
    with pytest.raises(ds.ConfigError, match=message):
        n.to_proto()


def test_bottom_that_is_no_output_is_refused() -> None:
    with pytest.raises(ds.ConfigError, match="allowed: outputs of other layers; options are given by name"):
        L.ReLU("data")
    with pytest.raises(AttributeError):
        NetSpec().conv1  # noqa: B018


def test_messages_are_where_pycaffe_has_them() -> None:
    from deepspark_ops.api.pycaffe.proto import caffe_pb2

    assert caffe.proto.caffe_pb2 is caffe_pb2
    assert isinstance(NetSpec().to_proto(), caffe_pb2.NetParameter)
