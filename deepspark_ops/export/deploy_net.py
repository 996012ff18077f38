"""The deploy net: what Caffe users load. Input layers in front, the net's answers after their activation at the end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.proto import caffe_pb2
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.net_wiring import user_name

_PROBABILITY_NAME = "prob"
_ACTIVATIONS = {"softmax": "Softmax", "sigmoid": "Sigmoid"}


@dataclass(frozen=True)
class DeployInput:
    """What an Input layer of the deploy net stands for.

    Attributes:
        blob: Its top.
        source: Blob of the data layer.
        part: First channel of the source that it takes, and the one behind the last; None for all.
    """

    blob: str
    source: str
    part: tuple[int, int] | None = None


@dataclass(frozen=True)
class DeployNet:
    """A deploy net.

    Attributes:
        message: It, with Input layers of batch size 1.
        inputs: What its Input layers stand for.
        outputs: Result -> its blob.
    """

    message: caffe_pb2.NetParameter
    inputs: tuple[DeployInput, ...]
    outputs: dict[ChosenTask, str]


def build_deploy_net(
    message: caffe_pb2.NetParameter, net: NetSpec, tasks: Sequence[ChosenTask], fed: Collection[str]
) -> DeployNet:
    """Return the deploy net.

    Kept are the layers that the results are computed from, in their order; losses, accuracies, data and labels
    go. Data blobs that are read become tops of Input layers of batch size 1; of a pair that a Slice parts only the side
    of the result. Where a result needs a Softmax or Sigmoid, that follows. Phase rules go too: the net has one form.

    Args:
        message: The net's layers in phase TEST, as the user wrote them.
        net: Built from it.
        tasks: Its results; of a pair one side.
        fed: Blobs that data layers provide.
    """
    deploy = caffe_pb2.NetParameter(name=net.name)
    sides = _sides(net, tasks, fed)
    kept = _needed_layers(message, {task.output for task in tasks}, {*fed, *(one.blob for one in sides)})
    read = {blob for layer in kept for blob in layer.bottom} | {task.output for task in tasks}
    given = [DeployInput(blob, blob) for blob in net.inputs if blob in read and blob in fed]
    inputs = (*given, *(one for one in sides if one.blob in read))
    for one in inputs:
        layer = deploy.layer.add(name=one.blob, type="Input", top=[one.blob])
        layer.input_param.shape.add(dim=[1, *net.blob_shapes[one.blob][1:]])
    for original in kept:
        copy = deploy.layer.add()
        copy.CopyFrom(original)
        for field in ("include", "exclude", "phase", "loss_weight"):
            copy.ClearField(field)
    taken = set(net.blob_shapes) | {layer.name for layer in net.layers}
    return DeployNet(deploy, inputs, {task: _activated(deploy, task, taken) for task in tasks})


def _activated(deploy: caffe_pb2.NetParameter, task: ChosenTask, taken: set[str]) -> str:
    """Add what turns a result's blob into its answer, and return the answer's blob."""
    if task.activation == "none":
        return task.output
    name = _free_name(taken, _PROBABILITY_NAME)
    taken.add(name)
    deploy.layer.add(name=name, type=_ACTIVATIONS[task.activation], bottom=[task.output], top=[name])
    return name


def _sides(net: NetSpec, tasks: Sequence[ChosenTask], fed: Collection[str]) -> list[DeployInput]:
    """Return the tops of a Slice that parts a data blob by channels, where a result is one side of a pair."""
    if not any(task.task == "embedding" for task in tasks):
        return []
    slices = [layer for layer in net.layers if layer.type == "Slice" and user_name(net, layer.bottoms[0]) in fed]
    return [side for layer in slices for side in _parts(net, layer)]


def inputs_of_sides(net: NetSpec, task: ChosenTask, fed: Collection[str]) -> tuple[DeployInput, ...]:
    """Return what each side of a pair is computed from: a data blob, or the channels of one that a Slice parts."""
    sides = {one.blob: one for one in _sides(net, [task], fed)}
    found = []
    for output in task.outputs:
        needed = {output}
        for layer in reversed(net.layers):
            if not needed.isdisjoint(layer.tops):
                needed.update(() if not sides.keys().isdisjoint(layer.tops) else layer.bottoms)
        found += [one for blob, one in sides.items() if blob in needed] or [
            DeployInput(blob, blob) for blob in net.inputs if blob in needed and blob in fed
        ]
    return tuple(found)


def _parts(net: NetSpec, layer: LayerSpec) -> list[DeployInput]:
    if layer.definition.options.axis != 1:  # type: ignore[attr-defined]
        return []
    found, start = [], 0
    for top, shape in zip(layer.tops, layer.definition.top_shapes, strict=True):
        found.append(DeployInput(top, user_name(net, layer.bottoms[0]), (start, start + shape[1])))
        start += shape[1]
    return found


def _needed_layers(
    message: caffe_pb2.NetParameter, blobs: Collection[str], given: Collection[str]
) -> list[caffe_pb2.LayerParameter]:
    """Return the layers that ``blobs`` depend on, in their order, without those that make what is given."""
    needed = set(blobs)
    kept: list[caffe_pb2.LayerParameter] = []
    for layer in reversed(message.layer):
        is_given = not set(given).isdisjoint(layer.top) and not set(layer.bottom) & set(layer.top)
        if needed.isdisjoint(layer.top) or (is_given and (not layer.bottom or layer.type == "Slice")):
            continue
        kept.append(layer)
        # An in-place layer makes the blob that it needs: the name stays wanted for the layers before it.
        needed.update(layer.bottom)
    return kept[::-1]


def _free_name(taken: set[str], name: str) -> str:
    number = 2
    free = name
    while free in taken:
        free = f"{name}{number}"
        number += 1
    return free


def opencv_names(deploy: caffe_pb2.NetParameter, blobs: Sequence[str]) -> dict[str, str]:
    """Return what OpenCV calls blobs, blob -> name: it asks for the layer, the last one that writes the blob."""
    return {blob: next(layer.name for layer in reversed(deploy.layer) if blob in layer.top) for blob in blobs}
