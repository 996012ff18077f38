"""The deploy net, as Caffe users load it: Input layers first, then the net, with activations at the end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from caffe_import.net.batch_size import set_batch_size
from caffe_import.net.net_spec import LayerSpec, NetSpec, build_net_spec
from caffe_import.net.param_layout import ParamLayout, Vector
from caffe_import.proto import caffe_pb2
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.net_wiring import user_name

_PROBABILITY_NAME = "prob"
_ACTIVATIONS = {"softmax": "Softmax", "sigmoid": "Sigmoid"}


@dataclass(frozen=True)
class DeployInput:
    """Source of an Input layer of the deploy net.

    Attributes:
        blob: Top of the Input layer.
        source: Blob of the data layer.
        part: Channels ``[first, end)`` of the source; None for all channels.
    """

    blob: str
    source: str
    part: tuple[int, int] | None = None


@dataclass(frozen=True)
class DeployNet:
    """A deploy net.

    Attributes:
        message: The net, with Input layers of batch size 1.
        inputs: Source of each Input layer.
        outputs: Result -> blob.
    """

    message: caffe_pb2.NetParameter
    inputs: tuple[DeployInput, ...]
    outputs: dict[ChosenTask, str]


def build_deploy_net(
    message: caffe_pb2.NetParameter, net: NetSpec, tasks: Sequence[ChosenTask], fed: Collection[str]
) -> DeployNet:
    """Return the deploy net.

    ``message`` has the layers in phase TEST as the user wrote them; data layers provide the blobs ``fed``.

    The deploy net has the layers that the results depend on, in order, without losses, accuracies, data and labels.
    Data blobs become tops of Input layers of batch size 1; if a Slice splits a pair, only the channels of the exported
    branch. A Softmax or Sigmoid follows each result with an activation. Phase rules are removed: the net has one form.
    """
    deploy = caffe_pb2.NetParameter(name=net.name)
    sides = _sides(net, tasks, fed)
    needed_layers = _needed_layers(
        message, {task.output for task in tasks}, {*fed, *(deploy_input.blob for deploy_input in sides)}
    )
    read = {blob for layer in needed_layers for blob in layer.bottom} | {task.output for task in tasks}
    whole_inputs = [DeployInput(blob, blob) for blob in net.inputs if blob in read and blob in fed]
    inputs = (*whole_inputs, *(deploy_input for deploy_input in sides if deploy_input.blob in read))
    for deploy_input in inputs:
        layer = deploy.layer.add(name=deploy_input.blob, type="Input", top=[deploy_input.blob])
        layer.input_param.shape.add(dim=[1, *net.blob_shapes[deploy_input.blob][1:]])
    for original in needed_layers:
        copy = deploy.layer.add()
        copy.CopyFrom(original)
        for field in ("include", "exclude", "phase", "loss_weight"):
            copy.ClearField(field)
    reserved_names = set(net.blob_shapes) | {layer.name for layer in net.layers}
    return DeployNet(deploy, inputs, {task: _activated(deploy, task, reserved_names) for task in tasks})


def build_deploy(deploy: caffe_pb2.NetParameter, batch_size: int) -> NetSpec:
    """Return a deploy net built for a batch size."""
    message = caffe_pb2.NetParameter()
    message.CopyFrom(deploy)
    for layer in message.layer:
        if layer.type == "Input":
            set_batch_size(layer, batch_size)
    return build_net_spec(message, phase="TEST")


def _activated(deploy: caffe_pb2.NetParameter, task: ChosenTask, reserved_names: set[str]) -> str:
    """Add the activation of a result's blob, and return the activated blob."""
    if task.activation == "none":
        return task.output
    name = free_name(_PROBABILITY_NAME, reserved_names, joint="")
    reserved_names.add(name)
    layer = deploy.layer.add(name=name, type=_ACTIVATIONS[task.activation], bottom=[task.output], top=[name])
    if task.activation == "softmax" and task.class_axis != 1:
        layer.softmax_param.axis = task.class_axis
    return name


def _sides(net: NetSpec, tasks: Sequence[ChosenTask], fed: Collection[str]) -> list[DeployInput]:
    """Return the tops of a Slice of a data blob by channels, where a result is a branch of a pair."""
    if not any(task.task == "embedding" for task in tasks):
        return []
    slices = [layer for layer in net.layers if layer.type == "Slice" and user_name(net, layer.bottoms[0]) in fed]
    return [side for layer in slices for side in _parts(net, layer)]


def inputs_of_sides(net: NetSpec, task: ChosenTask, fed: Collection[str]) -> tuple[DeployInput, ...]:
    """Return the input of each branch of a pair: a data blob, or the channels that a Slice cuts from a data blob."""
    sides = {side.blob: side for side in _sides(net, [task], fed)}
    branch_inputs = []
    for output in task.outputs:
        needed = {output}
        for layer in reversed(net.layers):
            if not needed.isdisjoint(layer.tops):
                needed.update(() if not sides.keys().isdisjoint(layer.tops) else layer.bottoms)
        branch_inputs += [side for blob, side in sides.items() if blob in needed] or [
            DeployInput(blob, blob) for blob in net.inputs if blob in needed and blob in fed
        ]
    return tuple(branch_inputs)


def _parts(net: NetSpec, layer: LayerSpec) -> list[DeployInput]:
    if layer.definition.options.axis != 1:  # type: ignore[attr-defined]
        return []
    channel_ranges, start = [], 0
    for top, shape in zip(layer.tops, layer.definition.top_shapes, strict=True):
        channel_ranges.append(DeployInput(top, user_name(net, layer.bottoms[0]), (start, start + shape[1])))
        start += shape[1]
    return channel_ranges


def _needed_layers(
    message: caffe_pb2.NetParameter, blobs: Collection[str], known_blobs: Collection[str]
) -> list[caffe_pb2.LayerParameter]:
    """Return the layers that ``blobs`` depend on, in order, without the layers that compute ``known_blobs``."""
    needed = set(blobs)
    needed_layers: list[caffe_pb2.LayerParameter] = []
    for layer in reversed(message.layer):
        is_known = not set(known_blobs).isdisjoint(layer.top) and not set(layer.bottom) & set(layer.top)
        if needed.isdisjoint(layer.top) or (is_known and (not layer.bottom or layer.type == "Slice")):
            continue
        needed_layers.append(layer)
        # An in-place layer has the same blob as bottom and top: earlier layers are still needed.
        needed.update(layer.bottom)
    return needed_layers[::-1]


def free_name(name: str, reserved_names: Collection[str], joint: str = "_") -> str:
    """Return the name if it is not reserved, else the name with ``joint`` and the first free number from 2 on."""
    free, number = name, 2
    while free in reserved_names:
        free, number = f"{name}{joint}{number}", number + 1
    return free


def opencv_names(deploy: caffe_pb2.NetParameter, blobs: Sequence[str]) -> dict[str, str]:
    """Return blob -> OpenCV's name of the blob: the name of the last layer that writes the blob."""
    return {blob: next(layer.name for layer in reversed(deploy.layer) if blob in layer.top) for blob in blobs}


def deploy_params(trained: ParamLayout, params: Vector, deploy: ParamLayout) -> Vector:
    """Return the deploy net's parameter vector, a fresh array of shape (deploy.n_params,).

    Layers keep their names, so (layer, index) identifies each blob. A shared blob may have another owner in the deploy
    net, where the first user was cut off.

    Args:
        trained: Layout of the net that was trained, phase TEST.
        params: Vector of the trained net, shape (trained.n_params,); read only.
        deploy: Layout of the deploy net.
    """
    vector = np.empty(deploy.n_params, np.float32)
    for entry in deploy.entries:
        source = trained.entry(entry.layer, entry.index)
        vector[entry.offset : entry.stop] = params[source.offset : source.stop]
    return vector
