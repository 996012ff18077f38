"""Old forms of net and solver definitions to Caffe's current form, as Caffe's ``util/upgrade_proto.cpp`` does it.

The order is Caffe's: V0 layers, transform fields of V1 data layers, V1 layers, net-level inputs, BatchNorm's
parameter specs. Layer weights (``blobs``) are kept, so the same steps read old caffemodels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from google.protobuf.message import Message

from caffe_import.errors import NetError, PrototxtError
from caffe_import.files.upgrade_v0 import has_v0_layers, net_v1_from_v0
from caffe_import.proto import caffe_pb2, is_repeated

_V1 = caffe_pb2.V1LayerParameter

_V1_TYPES: Final[dict[int, str]] = {
    _V1.NONE: "",
    _V1.ABSVAL: "AbsVal",
    _V1.ACCURACY: "Accuracy",
    _V1.ARGMAX: "ArgMax",
    _V1.BNLL: "BNLL",
    _V1.CONCAT: "Concat",
    _V1.CONTRASTIVE_LOSS: "ContrastiveLoss",
    _V1.CONVOLUTION: "Convolution",
    _V1.DECONVOLUTION: "Deconvolution",
    _V1.DATA: "Data",
    _V1.DROPOUT: "Dropout",
    _V1.DUMMY_DATA: "DummyData",
    _V1.EUCLIDEAN_LOSS: "EuclideanLoss",
    _V1.ELTWISE: "Eltwise",
    _V1.EXP: "Exp",
    _V1.FLATTEN: "Flatten",
    _V1.HDF5_DATA: "HDF5Data",
    _V1.HDF5_OUTPUT: "HDF5Output",
    _V1.HINGE_LOSS: "HingeLoss",
    _V1.IM2COL: "Im2col",
    _V1.IMAGE_DATA: "ImageData",
    _V1.INFOGAIN_LOSS: "InfogainLoss",
    _V1.INNER_PRODUCT: "InnerProduct",
    _V1.LRN: "LRN",
    _V1.MEMORY_DATA: "MemoryData",
    _V1.MULTINOMIAL_LOGISTIC_LOSS: "MultinomialLogisticLoss",
    _V1.MVN: "MVN",
    _V1.POOLING: "Pooling",
    _V1.POWER: "Power",
    _V1.RELU: "ReLU",
    _V1.SIGMOID: "Sigmoid",
    _V1.SIGMOID_CROSS_ENTROPY_LOSS: "SigmoidCrossEntropyLoss",
    _V1.SILENCE: "Silence",
    _V1.SOFTMAX: "Softmax",
    _V1.SOFTMAX_LOSS: "SoftmaxWithLoss",
    _V1.SPLIT: "Split",
    _V1.SLICE: "Slice",
    _V1.TANH: "TanH",
    _V1.WINDOW_DATA: "WindowData",
    _V1.THRESHOLD: "Threshold",
}
_V1_DATA_PARAMS = {
    _V1.DATA: "data_param",
    _V1.IMAGE_DATA: "image_data_param",
    _V1.WINDOW_DATA: "window_data_param",
}
_TRANSFORM_FIELDS = ("scale", "mean_file", "crop_size", "mirror")

_SOLVER_TYPES: Final[dict[int, str]] = {
    caffe_pb2.SolverParameter.SGD: "SGD",
    caffe_pb2.SolverParameter.NESTEROV: "Nesterov",
    caffe_pb2.SolverParameter.ADAGRAD: "AdaGrad",
    caffe_pb2.SolverParameter.RMSPROP: "RMSProp",
    caffe_pb2.SolverParameter.ADADELTA: "AdaDelta",
    caffe_pb2.SolverParameter.ADAM: "Adam",
}


def upgrade_net(net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
    """Return ``net`` in Caffe's current form; a current net is returned unchanged.

    Caffe's UpgradeNetAsNeeded. V0 options unknown to the layer type are logged and dropped, as in Caffe.

    Raises:
        NetError: ``layer`` and ``layers`` are mixed, a V0 type is unknown, a V0 padding layer feeds neither
            convolution nor pooling, or net-level inputs lack dimensions.
    """
    return _upgraded(net)[0]


@dataclass(frozen=True)
class NetForm:
    """The form of a net in its file.

    Attributes:
        version: Generation of its layers.
        upgrades: Changes of ``upgrade_net``, a line for each step; empty without changes.
    """

    version: Literal["V0", "V1", "current"]
    upgrades: tuple[str, ...]


def net_form(net: caffe_pb2.NetParameter) -> NetForm:
    """Return the form of a net that is not upgraded yet.

    Raises:
        NetError: As ``upgrade_net``.
    """
    version: Literal["V0", "V1", "current"] = "V1" if len(net.layers) else "current"
    return NetForm("V0" if has_v0_layers(net) else version, _upgraded(net)[1])


_NetStep = Callable[[caffe_pb2.NetParameter], caffe_pb2.NetParameter]


def _upgraded(net: caffe_pb2.NetParameter) -> tuple[caffe_pb2.NetParameter, tuple[str, ...]]:
    steps: tuple[tuple[str, Callable[[caffe_pb2.NetParameter], bool], _NetStep], ...] = (
        ("V0 layers become V1 layers", has_v0_layers, net_v1_from_v0),
        (
            "crop, mirror, scale and mean of data layers move to transform_param",
            _has_v1_transform_fields,
            _move_transform_fields,
        ),
        ("V1 layers become current layers", lambda n: len(n.layers) > 0, _net_from_v1),
        ("input fields of the net become an Input layer", _has_net_inputs, _input_layer_from_fields),
        ("BatchNorm statistics get lr_mult: 0", _has_batch_norm_specs, _freeze_batch_norm_specs),
    )
    descriptions = []
    for description, is_needed, step in steps:
        if is_needed(net):
            net = step(net)
            descriptions.append(description)
    return net, tuple(descriptions)


def solver_upgrades(solver: caffe_pb2.SolverParameter) -> tuple[str, ...]:
    """Return what ``upgrade_solver`` changes in a solver, one line per step; empty if nothing."""
    if not solver.HasField("solver_type"):
        return ()
    old = caffe_pb2.SolverParameter.SolverType.Name(solver.solver_type)
    return (f'solver_type: {old} -> type: "{_SOLVER_TYPES[solver.solver_type]}"',)


def upgrade_solver(solver: caffe_pb2.SolverParameter, *, path: str = "") -> caffe_pb2.SolverParameter:
    """Return ``solver`` with the deprecated ``solver_type`` enum turned into ``type`` (UpgradeSolverType).

    Raises:
        PrototxtError: Both are given.
    """
    if not solver.HasField("solver_type"):
        return solver
    if solver.HasField("type"):
        where = f"{path}: " if path else ""
        old = caffe_pb2.SolverParameter.SolverType.Name(solver.solver_type)
        msg = f'{where}solver has type: "{solver.type}" and the old solver_type: {old}; remove solver_type'
        raise PrototxtError(msg, path=path)
    upgraded = caffe_pb2.SolverParameter()
    upgraded.CopyFrom(solver)
    upgraded.type = _SOLVER_TYPES[solver.solver_type]
    upgraded.ClearField("solver_type")
    return upgraded


def _copy(net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
    copied = caffe_pb2.NetParameter()
    copied.CopyFrom(net)
    return copied


# V1: enum types, blobs_lr and weight_decay beside the layer, transform fields inside the data parameters


def _has_v1_transform_fields(net: caffe_pb2.NetParameter) -> bool:
    return any(
        getattr(layer, _V1_DATA_PARAMS[layer.type]).HasField(moved)
        for layer in net.layers
        if layer.type in _V1_DATA_PARAMS
        for moved in _TRANSFORM_FIELDS
    )


def _move_transform_fields(net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
    """UpgradeNetDataTransformation. Only V1 layers: in current syntax these fields are ignored by Caffe."""
    upgraded = _copy(net)
    for layer in upgraded.layers:
        if layer.type not in _V1_DATA_PARAMS:
            continue
        options = getattr(layer, _V1_DATA_PARAMS[layer.type])
        # Caffe writes both messages, empty ones too, into every data layer of a net with a single old field.
        options.SetInParent()
        layer.transform_param.SetInParent()
        for moved in _TRANSFORM_FIELDS:
            if options.HasField(moved):
                setattr(layer.transform_param, moved, getattr(options, moved))
                options.ClearField(moved)
    return upgraded


def _net_from_v1(net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
    """UpgradeV1Net."""
    if len(net.layer) > 0:
        msg = (
            f"net has {len(net.layer)} `layer` and {len(net.layers)} old `layers` entries; "
            "write all of them in one form (current: `layer`)"
        )
        raise NetError(msg)
    upgraded = _copy(net)
    upgraded.ClearField("layers")
    for old in net.layers:
        upgraded.layer.append(_layer_from_v1(old))
    return upgraded


_V1_SPECS = {"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult", "weight_decay": "decay_mult"}


def _layer_from_v1(old: caffe_pb2.V1LayerParameter) -> caffe_pb2.LayerParameter:
    """UpgradeV1LayerParameter."""
    upgraded = caffe_pb2.LayerParameter()
    for descriptor, value in old.ListFields():
        name = descriptor.name
        if name == "type":
            upgraded.type = _V1_TYPES[value]
        elif name in _V1_SPECS:
            for index, item in enumerate(value):
                while len(upgraded.param) <= index:
                    upgraded.param.add()
                setattr(upgraded.param[index], _V1_SPECS[name], item)
        elif is_repeated(descriptor):
            getattr(upgraded, name).extend(value)
        elif isinstance(value, Message) and name != "layer":
            getattr(upgraded, name).CopyFrom(value)
        elif name == "name":
            upgraded.name = value
    return upgraded


# net-level inputs, BatchNorm's specs


def _has_net_inputs(net: caffe_pb2.NetParameter) -> bool:
    return len(net.input) > 0


def _input_layer_from_fields(net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
    """UpgradeNetInput: ``input`` with ``input_shape`` or four ``input_dim`` each becomes an Input layer in front."""
    upgraded = _copy(net)
    for old in ("input", "input_shape", "input_dim"):
        upgraded.ClearField(old)
    if len(net.input_shape) == 0 and len(net.input_dim) == 0:
        return upgraded
    first = caffe_pb2.LayerParameter(name="input", type="Input", top=net.input)
    first.input_param.SetInParent()
    for index, blob in enumerate(net.input):
        if len(net.input_shape) > 0:
            dims = list(net.input_shape[index].dim) if index < len(net.input_shape) else None
        else:
            dims = list(net.input_dim[4 * index : 4 * index + 4]) if 4 * index + 4 <= len(net.input_dim) else None
        if dims is None:
            shapes = (
                f"{len(net.input_shape)} input_shape" if len(net.input_shape) else f"{len(net.input_dim)} input_dim"
            )
            finding = f'input "{blob}" has no dimensions: {len(net.input)} inputs but {shapes}'
            msg = f"{finding}; give one input_shape per input"
            raise NetError(msg)
        first.input_param.shape.add(dim=dims)
    upgraded.ClearField("layer")
    upgraded.layer.append(first)
    upgraded.layer.extend(net.layer)
    return upgraded


def _has_batch_norm_specs(net: caffe_pb2.NetParameter) -> bool:
    return any(
        layer.type == "BatchNorm" and len(layer.param) == 3 and not all(map(_is_frozen, layer.param))
        for layer in net.layer
    )


def _is_frozen(spec: caffe_pb2.ParamSpec) -> bool:
    return spec.lr_mult == 0 and spec.decay_mult == 0  # a multiplier that is not given is 1


def _freeze_batch_norm_specs(net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
    """UpgradeNetBatchNorm: three specs are the old way to keep statistics from learning."""
    upgraded = _copy(net)
    for layer in upgraded.layer:
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            for spec in layer.param:
                spec.lr_mult = 0
                spec.decay_mult = 0
    return upgraded
