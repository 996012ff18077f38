"""V0 layers to V1 layers, as Caffe's ``util/upgrade_proto.cpp`` does it.

V0, of 2013, has one flat message inside each ``layers``, type names in lower case, and padding as a separate layer.
"""

from __future__ import annotations

import logging
from typing import Final

from google.protobuf.message import Message

from caffe_import.errors import NetError, did_you_mean
from caffe_import.proto import caffe_pb2, is_repeated

_LOG = logging.getLogger(__name__)
_V1 = caffe_pb2.V1LayerParameter

_V0_TYPES: Final[dict[str, _V1.LayerType]] = {
    "accuracy": _V1.ACCURACY,
    "bnll": _V1.BNLL,
    "concat": _V1.CONCAT,
    "conv": _V1.CONVOLUTION,
    "data": _V1.DATA,
    "dropout": _V1.DROPOUT,
    "euclidean_loss": _V1.EUCLIDEAN_LOSS,
    "flatten": _V1.FLATTEN,
    "hdf5_data": _V1.HDF5_DATA,
    "hdf5_output": _V1.HDF5_OUTPUT,
    "im2col": _V1.IM2COL,
    "images": _V1.IMAGE_DATA,
    "infogain_loss": _V1.INFOGAIN_LOSS,
    "innerproduct": _V1.INNER_PRODUCT,
    "lrn": _V1.LRN,
    "multinomial_logistic_loss": _V1.MULTINOMIAL_LOGISTIC_LOSS,
    "pool": _V1.POOLING,
    "relu": _V1.RELU,
    "sigmoid": _V1.SIGMOID,
    "softmax": _V1.SOFTMAX,
    "softmax_loss": _V1.SOFTMAX_LOSS,
    "split": _V1.SPLIT,
    "tanh": _V1.TANH,
    "window_data": _V1.WINDOW_DATA,
}

# V0 field -> V0 layer type -> (V1 parameter message, its field). V0 kept every option in one flat message.
_CONV_AND_IP = {"conv": "convolution_param", "innerproduct": "inner_product_param"}
_SOURCES = {
    "data": "data_param",
    "hdf5_data": "hdf5_data_param",
    "images": "image_data_param",
    "window_data": "window_data_param",
}
_V0_FIELDS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "num_output": ("num_output", _CONV_AND_IP),
    "biasterm": ("bias_term", _CONV_AND_IP),
    "weight_filler": ("weight_filler", _CONV_AND_IP),
    "bias_filler": ("bias_filler", _CONV_AND_IP),
    "pad": ("pad", {"conv": "convolution_param", "pool": "pooling_param"}),
    "kernelsize": ("kernel_size", {"conv": "convolution_param", "pool": "pooling_param"}),
    "group": ("group", {"conv": "convolution_param"}),
    "stride": ("stride", {"conv": "convolution_param", "pool": "pooling_param"}),
    "pool": ("pool", {"pool": "pooling_param"}),
    "dropout_ratio": ("dropout_ratio", {"dropout": "dropout_param"}),
    "local_size": ("local_size", {"lrn": "lrn_param"}),
    "alpha": ("alpha", {"lrn": "lrn_param"}),
    "beta": ("beta", {"lrn": "lrn_param"}),
    "k": ("k", {"lrn": "lrn_param"}),
    "source": ("source", {**_SOURCES, "infogain_loss": "infogain_loss_param"}),
    "batchsize": ("batch_size", _SOURCES),
    "rand_skip": ("rand_skip", {"data": "data_param", "images": "image_data_param"}),
    "shuffle_images": ("shuffle", {"images": "image_data_param"}),
    "new_height": ("new_height", {"images": "image_data_param"}),
    "new_width": ("new_width", {"images": "image_data_param"}),
    "concat_dim": ("concat_dim", {"concat": "concat_param"}),
    "det_fg_threshold": ("fg_threshold", {"window_data": "window_data_param"}),
    "det_bg_threshold": ("bg_threshold", {"window_data": "window_data_param"}),
    "det_fg_fraction": ("fg_fraction", {"window_data": "window_data_param"}),
    "det_context_pad": ("context_pad", {"window_data": "window_data_param"}),
    "det_crop_mode": ("crop_mode", {"window_data": "window_data_param"}),
}
_V0_TRANSFORM = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}
_V0_PLAIN = ("name", "type", "blobs", "blobs_lr", "weight_decay", "hdf5_output_param")


def has_v0_layers(net: caffe_pb2.NetParameter) -> bool:
    """Is a layer of the net in the V0 form?"""
    return any(layer.HasField("layer") for layer in net.layers)


def net_v1_from_v0(net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
    """Return the net with V1 layers (UpgradeV0Net): besides the layers only name, inputs and force_backward survive.

    Raises:
        NetError: A type or bottom is unknown, or a padding layer feeds neither convolution nor pooling.
    """
    upgraded = caffe_pb2.NetParameter(input=net.input, input_dim=net.input_dim)
    for plain in ("name", "force_backward"):
        if net.HasField(plain):
            setattr(upgraded, plain, getattr(net, plain))
    for connection in _fold_padding(net):
        upgraded.layers.append(_layer_v1_from_v0(connection))
    return upgraded


def _fold_padding(net: caffe_pb2.NetParameter) -> list[caffe_pb2.V1LayerParameter]:
    """UpgradeV0PaddingLayers: a padding layer's pad moves into the convolution or pooling behind."""
    producers: dict[str, caffe_pb2.V1LayerParameter | None] = dict.fromkeys(net.input)
    connections: list[caffe_pb2.V1LayerParameter] = []
    for original in net.layers:
        connection = caffe_pb2.V1LayerParameter()
        connection.CopyFrom(original)
        for index, blob in enumerate(original.bottom):
            if blob not in producers:
                raise _unknown_v0_bottom(original, blob, producers)
            source = producers[blob]
            if source is not None and source.layer.type == "padding":
                _take_padding(connection, index, source)
        if original.layer.type != "padding":
            connections.append(connection)
        producers.update(dict.fromkeys(original.top, original))
    return connections


def _unknown_v0_bottom(
    connection: caffe_pb2.V1LayerParameter, blob: str, producers: dict[str, caffe_pb2.V1LayerParameter | None]
) -> NetError:
    name = connection.layer.name
    return NetError(
        f'layer "{name}": no layer before it makes bottom "{blob}"{did_you_mean(blob, producers)}', layer=name
    )


def _take_padding(connection: caffe_pb2.V1LayerParameter, index: int, padding: caffe_pb2.V1LayerParameter) -> None:
    name = connection.layer.name
    if connection.layer.type not in ("conv", "pool"):
        msg = f'layer "{name}" (V0 {connection.layer.type}): a padding layer may feed only conv or pool'
        raise NetError(msg, layer=name)
    if len(connection.bottom) != 1 or len(padding.bottom) != 1:
        msg = f'layer "{name}": padding "{padding.layer.name}" needs exactly one bottom on both layers'
        raise NetError(msg, layer=name)
    connection.layer.pad = padding.layer.pad
    connection.bottom[index] = padding.bottom[0]


def _layer_v1_from_v0(connection: caffe_pb2.V1LayerParameter) -> caffe_pb2.V1LayerParameter:
    """UpgradeV0LayerParameter."""
    upgraded = caffe_pb2.V1LayerParameter(bottom=connection.bottom, top=connection.top)
    if not connection.HasField("layer"):
        return upgraded
    old = connection.layer
    if old.HasField("name"):
        upgraded.name = old.name
    if old.HasField("type"):
        upgraded.type = _v1_type_of(old)
    upgraded.blobs.extend(old.blobs)
    upgraded.blobs_lr.extend(old.blobs_lr)
    upgraded.weight_decay.extend(old.weight_decay)
    for descriptor, value in old.ListFields():
        if descriptor.name not in _V0_PLAIN:
            _move_v0_option(descriptor.name, value, old, upgraded)
    if old.HasField("hdf5_output_param"):
        if old.type == "hdf5_output":
            upgraded.hdf5_output_param.CopyFrom(old.hdf5_output_param)
        else:
            _warn_dropped("hdf5_output_param", old)
    return upgraded


def _v1_type_of(old: caffe_pb2.V0LayerParameter) -> _V1.LayerType:
    if old.type not in _V0_TYPES:
        types = ", ".join(_V0_TYPES)
        finding = f'layer "{old.name}": unknown V0 layer type "{old.type}"'
        msg = f"{finding}; known: {types}{did_you_mean(old.type, _V0_TYPES)}"
        raise NetError(msg, layer=old.name)
    return _V0_TYPES[old.type]


def _move_v0_option(
    name: str, value: object, old: caffe_pb2.V0LayerParameter, upgraded: caffe_pb2.V1LayerParameter
) -> None:
    if name in _V0_TRANSFORM:
        setattr(upgraded.transform_param, _V0_TRANSFORM[name], value)
        return
    new_name, owners = _V0_FIELDS.get(name, ("", {}))
    if old.type not in owners:
        _warn_dropped(name, old)
        return
    options: Message = getattr(upgraded, owners[old.type])
    if is_repeated(options.DESCRIPTOR.fields_by_name[new_name]):
        getattr(options, new_name).append(value)
    elif isinstance(value, Message):
        getattr(options, new_name).CopyFrom(value)
    else:
        setattr(options, new_name, value)


def _warn_dropped(name: str, old: caffe_pb2.V0LayerParameter) -> None:
    _LOG.warning('layer "%s": V0 type "%s" has no option "%s"; dropped, as Caffe does', old.name, old.type, name)
