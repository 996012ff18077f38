"""Notes on a layer for the report: silent effects in Caffe, perhaps not intended by the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from caffe_import.layers.batch_norm import BatchNormOptions
from caffe_import.layers.dropout import DropoutOptions
from caffe_import.layers.lrn import LRNOptions
from caffe_import.net.layer_registry import Phase, registered_types
from caffe_import.net.net_spec import LayerSpec
from caffe_import.proto import caffe_pb2

_COLOUR_CHANNELS: Final = 3
_OTHER_READERS: Final = {
    "convolution_param": ("Deconvolution", "DepthwiseConvolution", "Im2col"),
    "relu_param": ("ReLU6",),
    "softmax_param": ("SoftmaxWithLoss",),
}
"""Message of options -> types that read the message without having its name."""


def layer_notes(layer: LayerSpec, phase: Phase) -> tuple[str, ...]:
    """Return the notes of a layer: first the notes of the layer type, then frequent oversights."""
    notes = [*layer.definition.notes, *ignored_options(layer.message)]
    if layer.definition.is_data:
        notes += _data_notes(layer)
    describe = _BY_TYPE.get(layer.type)
    if describe is not None:
        notes += describe(layer, phase)
    if phase == "TRAIN":
        notes += _rate_notes(layer)
    return tuple(notes)


def ignored_options(layer: caffe_pb2.LayerParameter) -> list[str]:
    """Return a note for each message of options that another layer type reads, such as data_param in ImageData."""
    messages = [field.name for field, _ in layer.ListFields() if field.name.endswith("_param")]
    owners = {message: _types_by_message().get(message.replace("_", "")) for message in messages}
    return [
        f"{message} is of layer type {owner}; Caffe ignores the message in {layer.type}"
        for message, owner in owners.items()
        if owner not in (None, layer.type) and layer.type not in _OTHER_READERS.get(message, ())
    ]


@cache
def _types_by_message() -> Mapping[str, str]:
    """Return the name of a type's message without underscores, such as hdf5dataparam -> type."""
    return {f"{name.lower()}param": name for name in registered_types()}


def _data_notes(layer: LayerSpec) -> list[str]:
    transform = layer.message.transform_param
    shape = layer.definition.top_shapes[0]
    notes = []
    if len(shape) == 4 and shape[1] == _COLOUR_CHANNELS and layer.type in ("Data", "ImageData", "WindowData"):
        notes.append("channels are in BGR order, as the image library reads them; feed BGR when predicting")
    if transform.mean_file:
        notes.append(
            "mean_file: a mean image of the size before the crop is subtracted pixel by pixel, "
            "cropped where the image is"
        )
    elif transform.mean_value:
        values = ", ".join(f"{value:g}" for value in transform.mean_value)
        notes.append(f"mean_value: {values} is subtracted, one value per channel in BGR order; no mean image")
    elif len(shape) == 4 and layer.type in ("Data", "ImageData"):
        notes.append("no mean is subtracted")
    if (transform.mean_file or transform.mean_value) and transform.scale != 1 and layer.type != "WindowData":
        notes.append(
            f"scale {transform.scale:g} multiplies after the mean is subtracted: the mean is in unscaled units"
        )
    return notes


def _dropout_notes(layer: LayerSpec, phase: Phase) -> list[str]:
    options = layer.definition.options
    if not isinstance(options, DropoutOptions) or phase == "TEST":
        return []
    return [
        f"dropout_ratio {options.ratio:g} is the share dropped; what stays is multiplied by "
        f"{1 / (1 - options.ratio):g} in training, nothing is scaled in tests"
    ]


def _lrn_notes(layer: LayerSpec, _: Phase) -> list[str]:
    options = layer.definition.options
    if not isinstance(options, LRNOptions):
        return []
    if options.region == "WITHIN_CHANNEL":
        return [
            f"within-channel LRN: alpha is divided by local_size squared ({options.local_size**2}), windows at the "
            "border are padded with zeros"
        ]
    return [f"alpha {options.alpha:g} is divided by local_size {options.local_size}; other frameworks do not divide"]


def _batch_norm_notes(layer: LayerSpec, phase: Phase) -> list[str]:
    options = layer.definition.options
    if not isinstance(options, BatchNormOptions):
        return []
    if phase == "TRAIN" and options.use_global_stats:
        return ["use_global_stats: true in TRAIN: the stored statistics are used and never move"]
    if phase == "TRAIN":
        return [
            "normalises with the batch's own statistics and keeps running sums with moving_average_fraction "
            f"{options.moving_average_fraction:g}; no scale or shift of its own (layer Scale does that)"
        ]
    if not options.use_global_stats:
        return [
            "normalises with the test batch's own statistics: a sample's answer depends on the batch size and on the "
            "other samples; leave use_global_stats out to use the stored ones"
        ]
    return []


def _rate_notes(layer: LayerSpec) -> list[str]:
    learned = [index for index, blob in enumerate(layer.definition.blobs) if blob.kind == "weight"]
    param_specs = layer.message.param
    unsaid = [index for index in learned if index >= len(param_specs) or not param_specs[index].HasField("lr_mult")]
    if not unsaid:
        return []
    blobs = ", ".join(str(index) for index in unsaid)
    return [f"implicit lr_mult: 1 and decay_mult: 1 for blob {blobs}; Caffe's own nets give biases 2 and 0"]


_BY_TYPE: Final[Mapping[str, Callable[[LayerSpec, Phase], list[str]]]] = {
    "Dropout": _dropout_notes,
    "LRN": _lrn_notes,
    "BatchNorm": _batch_norm_notes,
}
