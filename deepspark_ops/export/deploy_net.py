"""The deploy net: what Caffe users load to classify. Input layer in front, class probabilities at the end."""

from __future__ import annotations

from collections.abc import Collection

from caffe_import.net.net_spec import NetSpec
from caffe_import.proto import caffe_pb2
from deepspark_ops.evaluate.score_blob import ScoreBlob

_PROBABILITY_NAME = "prob"


def build_deploy_net(
    message: caffe_pb2.NetParameter, net: NetSpec, scores: ScoreBlob, fed: Collection[str]
) -> tuple[caffe_pb2.NetParameter, str]:
    """Return the deploy net and the name of its probability blob.

    Kept are the layers that the class scores are computed from, in their order; losses, accuracies, data and labels
    go. Data blobs that are read become tops of Input layers of batch size 1. Where the scores are no probabilities
    yet, a Softmax follows. Phase rules go too: the net has one form.

    Args:
        message: The net's layers in phase TEST, as the user wrote them.
        net: Built from it.
        scores: Where its class scores are.
        fed: Blobs that data layers provide.
    """
    deploy = caffe_pb2.NetParameter(name=net.name)
    kept = _needed_layers(message, scores.name, fed)
    read = {blob for layer in kept for blob in layer.bottom}
    for blob in net.inputs:
        if blob in read and blob in fed:
            layer = deploy.layer.add(name=blob, type="Input", top=[blob])
            layer.input_param.shape.add(dim=[1, *net.inputs[blob][1:]])
    for original in kept:
        copy = deploy.layer.add()
        copy.CopyFrom(original)
        for field in ("include", "exclude", "phase", "loss_weight"):
            copy.ClearField(field)
    if scores.is_probability:
        return deploy, scores.name
    name = _free_name(net, _PROBABILITY_NAME)
    deploy.layer.add(name=name, type="Softmax", bottom=[scores.name], top=[name])
    return deploy, name


def _needed_layers(message: caffe_pb2.NetParameter, blob: str, fed: Collection[str]) -> list[caffe_pb2.LayerParameter]:
    """Return the layers that ``blob`` depends on, in their order, without those that provide data."""
    needed = {blob}
    kept: list[caffe_pb2.LayerParameter] = []
    for layer in reversed(message.layer):
        if needed.isdisjoint(layer.top) or (not set(fed).isdisjoint(layer.top) and not layer.bottom):
            continue
        kept.append(layer)
        # An in-place layer makes the blob that it needs: the name stays wanted for the layers before it.
        needed.update(layer.bottom)
    return kept[::-1]


def _free_name(net: NetSpec, name: str) -> str:
    taken = set(net.blob_shapes) | {layer.name for layer in net.layers}
    number = 2
    free = name
    while free in taken:
        free = f"{name}{number}"
        number += 1
    return free
