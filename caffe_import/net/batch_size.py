"""Batch size of a net: any size if the layers allow this, else the size in the prototxt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from caffe_import.errors import NetError
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.proto import caffe_pb2

_ANY = -1
_OVER_TIME = ("LSTM", "RNN")
BuildNet = Callable[[int], NetSpec]
"""Returns a net built for a batch size. Raises ``NetError`` where the net has no such form."""


def net_in_batches(
    data_layers: Sequence[caffe_pb2.LayerParameter],
    build: Callable[[], NetSpec],
    *,
    requested: int | None,
    default: int,
) -> NetSpec:
    """Set the batch size of a net's data layers in place, and return the net.

    Args:
        data_layers: Messages of the layers that are fed.
        build: Returns the net of the messages as they are.
        requested: The batch size that a user asks for; None for none.
        default: The batch size of a net that takes any. A net that takes one alone keeps that of its prototxt.

    Raises:
        NetError: The net cannot be built, or not for the batch size that is asked for.
    """
    own_sizes = [batch_size_of(layer) for layer in data_layers]

    def built(*batch_sizes: int) -> NetSpec:
        for layer, batch_size in zip(data_layers, batch_sizes, strict=True):
            set_batch_size(layer, batch_size)
        return build()

    def built_for(batch_size: int) -> NetSpec:
        return built(*[batch_size] * len(data_layers))

    if requested is None:
        return built_for(default) if net_of_any_batch(built_for) is not None else built(*own_sizes)
    try:
        return built_for(requested)
    except NetError as error:
        built(*own_sizes)  # a net that cannot be built at all says so
        msg = f"batch_size={requested}: {error}; the net's own batch is {own_sizes[0]}; leave batch_size out"
        raise NetError(msg, layer=error.layer) from error


def unit_batch(build: BuildNet, own_size: int) -> int:
    """Return the least number of samples for a net: 1, or ``own_size`` if the net needs the whole batch.

    A net whose answers depend on the other samples needs the whole batch, too. With fewer samples a recurrent layer has
    shorter sequences, and a BatchNorm layer has other means.
    """
    if net_of_any_batch(build) is not None:
        return 1
    try:
        small = build(1)
    except NetError:
        return own_size
    try:
        large = build(2)
    except NetError:
        return 1
    return own_size if _mixes_samples(small, large) else 1


def net_of_any_batch(build: BuildNet) -> NetSpec | None:
    """Return the net with -1 for the batch axis in every shape; None if the net takes not every batch.

    A Caffe net has fixed shapes. Built for two batch sizes, what differs is what depends on the batch; a reshape to
    a shape with one -1 means the same for every size.

    Args:
        build: Returns the net for a batch size.
    """
    try:
        small, large = build(2), build(3)
    except NetError:
        return None
    if _mixes_samples(small, large):
        return None
    layers = []
    for small_layer, large_layer in zip(small.layers, large.layers, strict=True):
        tops = _merge_all(small_layer.definition.top_shapes, large_layer.definition.top_shapes)
        bottoms = _merge_all(small_layer.bottom_shapes, large_layer.bottom_shapes)
        if tops is None or bottoms is None:
            return None
        definition = replace(small_layer.definition, top_shapes=tops)
        layers.append(replace(small_layer, bottom_shapes=bottoms, definition=definition))
    return replace(small, layers=tuple(layers))


def _mixes_samples(small: NetSpec, large: NetSpec) -> bool:
    """Return whether an answer depends on the other samples of the batch.

    A BatchNorm layer may take mean and variance of the batch. A recurrent layer may take the samples as steps: a larger
    batch then has more steps.
    """
    return any(
        layer.definition.mixes_samples
        or (layer.type in _OVER_TIME and layer.bottom_shapes[0][0] != other.bottom_shapes[0][0])
        for layer, other in zip(small.layers, large.layers, strict=True)
    )


def _merge_all(shapes: tuple[Shape, ...], other_shapes: tuple[Shape, ...]) -> tuple[Shape, ...] | None:
    merged = [_merge(shape, other) for shape, other in zip(shapes, other_shapes, strict=True)]
    return tuple(shape for shape in merged if shape is not None) if None not in merged else None


def _merge(first: Shape, other: Shape) -> Shape | None:
    """Return the common shape, -1 in front if the first axes differ; None if another axis does."""
    if first == other:
        return first
    return (_ANY, *first[1:]) if first[1:] == other[1:] else None


_MESSAGES = {"Data": "data", "ImageData": "image_data", "HDF5Data": "hdf5_data", "MemoryData": "memory_data"}


def set_batch_size(layer: caffe_pb2.LayerParameter, batch_size: int) -> None:
    """Write the batch size into a data layer's message, whatever its type."""
    if layer.type == "Input":
        for shape in layer.input_param.shape:
            shape.dim[0] = batch_size
        return
    getattr(layer, f"{_MESSAGES[layer.type]}_param").batch_size = batch_size


def batch_size_of(layer: caffe_pb2.LayerParameter) -> int:
    """Return the batch size in a data layer's message of any type; 0 without a batch size."""
    if layer.type == "Input":
        return next((shape.dim[0] for shape in layer.input_param.shape if shape.dim), 0)
    return int(getattr(layer, f"{_MESSAGES[layer.type]}_param").batch_size)
