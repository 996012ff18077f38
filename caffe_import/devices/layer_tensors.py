"""Which tensors each layer makes, and which of them its gradient reads again: what a training step must keep.

The rules follow the emitters of ``tf_graph/layers``: TensorFlow keeps a tensor as long as an operation that is still to
come reads it. Nothing here imports TensorFlow; ``tests/integration/devices`` compares with what it really takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

from caffe_import.layers.activations import ReLUOptions
from caffe_import.layers.dropout import DropoutOptions
from caffe_import.layers.eltwise import EltwiseOptions
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.net.shapes.convolved_windows import ConvolutionOptions
from caffe_import.net.shapes.pooled_windows import PoolingOptions
from caffe_import.proto import caffe_pb2

Form = Literal["caffe", "channels last"]
_VALUE_BYTES: Final = 4


@dataclass(frozen=True)
class Tensor:
    """A tensor of one pass that takes memory of its own.

    Attributes:
        name: Unique in the pass.
        layer: The layer whose operations make it.
        n_bytes: Its size, float32 unless it is a mask.
    """

    name: str
    layer: str
    n_bytes: int


@dataclass(frozen=True)
class LayerTensors:
    """What one layer makes and reads.

    Attributes:
        layer: The layer.
        makes: New tensors; none where its tops are its bottom's memory.
        reads: Tensors that its forward pass reads.
        kept: Tensors that its gradient reads; empty where no gradient passes through the layer.
        tops: The tensor that holds each top, in the order of the tops.
        reuses: Does it write its top over its bottom, and its bottom's gradient over its top's?
    """

    layer: LayerSpec
    makes: tuple[Tensor, ...]
    reads: tuple[str, ...]
    kept: tuple[str, ...]
    tops: tuple[str, ...]
    reuses: bool


@dataclass(frozen=True)
class _Rule:
    """What the gradient of a layer type reads: its bottoms, its tops, and tensors of its own.

    ``own`` gives the bytes of the latter.
    """

    bottoms: bool = False
    tops: bool = False
    own: Callable[[LayerSpec], int] = lambda _: 0


def _values(shapes: Sequence[Shape]) -> int:
    return sum(prod(shape) for shape in shapes)


def _top_bytes(layer: LayerSpec) -> int:
    return _VALUE_BYTES * _values(layer.definition.top_shapes[:1])


def _bottom_bytes(layer: LayerSpec) -> int:
    return _VALUE_BYTES * _values(layer.bottom_shapes[:1])


def _one_byte_mask(layer: LayerSpec) -> int:
    return _values(layer.definition.top_shapes[:1])


_NOTHING: Final = _Rule()
_BOTTOMS: Final = _Rule(bottoms=True)
_TOPS: Final = _Rule(tops=True)
_BOTH: Final = _Rule(bottoms=True, tops=True)
# oneDNN's kernel notes where in its window each maximum was.
_PLACES_OF_MAXIMA: Final = _Rule(bottoms=True, tops=True, own=_one_byte_mask)
# A type that is not here keeps both, which is never too little by much.
_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(("AbsVal", "BNLL", "Clip", "Deconvolution", "InnerProduct", "BatchNorm", "Scale"), _BOTTOMS),
    **dict.fromkeys(("Interp", "Reduction", "Embed", "Im2col", "Axpy"), _BOTTOMS),
    **dict.fromkeys(("Sigmoid", "TanH", "Exp", "ReLU6", "Softmax"), _TOPS),
    **dict.fromkeys(("Concat", "Slice", "Crop", "Tile", "Bias", "Permute", "ShuffleChannel", "Upsample"), _NOTHING),
    **dict.fromkeys(("Split", "Flatten", "Reshape", "Silence", "Threshold", "Parameter", "HDF5Output"), _NOTHING),
    **dict.fromkeys(("Accuracy", "ArgMax", "BatchReindex", "Filter"), _NOTHING),
    "LRN": _Rule(bottoms=True, tops=True, own=lambda layer: 2 * _top_bytes(layer)),
    "MVN": _Rule(tops=True),
    "PReLU": _Rule(bottoms=True, own=_one_byte_mask),
    "ELU": _Rule(bottoms=True, own=lambda layer: _top_bytes(layer) + _one_byte_mask(layer)),
    "Swish": _Rule(bottoms=True, own=_top_bytes),
    "SoftmaxWithLoss": _Rule(own=_bottom_bytes),
    # h, c, four gates and the products before them, for every step.
    "LSTM": _Rule(bottoms=True, tops=True, own=lambda layer: 12 * _top_bytes(layer)),
    "RNN": _Rule(bottoms=True, tops=True, own=lambda layer: 3 * _top_bytes(layer)),
}
_SCRATCH_TOPS: Final = {"LRN": 3, "Scale": 1}
_CHANNELS_LAST: Final = frozenset(
    "Convolution ConvolutionDepthwise DepthwiseConvolution Deconvolution Pooling LRN BatchNorm Interp Upsample"
    " SPP".split()
)
_VALUE_BY_VALUE: Final = frozenset(
    "AbsVal BNLL Sigmoid TanH Clip ELU Exp Log Power ReLU ReLU6 Swish Threshold Dropout Scale Bias PReLU Eltwise Axpy"
    " Normalize Softmax".split()
)
_EITHER: Final = _VALUE_BY_VALUE | frozenset("Concat Slice Crop Tile Split Silence ShuffleChannel".split())
_SAME_MEMORY: Final = frozenset(("Split", "Flatten", "Reshape"))


def rule_of(layer: LayerSpec) -> _Rule:
    """Return what the layer's gradient reads."""
    options = layer.definition.options
    if isinstance(options, PoolingOptions):
        return {"MAX": _Rule(bottoms=True, tops=True, own=_one_byte_mask), "AVE": _NOTHING}.get(
            options.method, _BOTTOMS
        )
    if isinstance(options, ReLUOptions):
        return _TOPS if options.negative_slope == 0 else _BOTTOMS
    if isinstance(options, EltwiseOptions):
        masks = _Rule(own=lambda at: _one_byte_mask(at) * (len(at.bottoms) - 1))
        return {"SUM": _NOTHING, "MAX": masks}.get(options.operation, _BOTTOMS)
    if isinstance(options, DropoutOptions):
        return _NOTHING if _is_identity(layer) else _Rule(own=_one_byte_mask)
    if isinstance(options, ConvolutionOptions) and layer.type != "Deconvolution":
        # The gradient of the weights reads the image as the kernel got it: padded, or cut into groups.
        return _Rule(bottoms=options.group == 1 or _is_depthwise(layer, options))
    return _RULES.get(layer.type, _BOTH)


def layer_tensors(net: NetSpec) -> tuple[LayerTensors, ...]:
    """Return what each layer of ``net`` makes and reads, in the order of execution."""
    trace = _Trace()
    return tuple(trace.run(layer) for layer in net.layers)


def _is_identity(layer: LayerSpec) -> bool:
    """Does the layer hand its bottom on?"""
    options = layer.definition.options
    if isinstance(options, DropoutOptions):
        return layer.message.phase != caffe_pb2.TRAIN or options.ratio == 0
    return layer.type in _SAME_MEMORY


def _is_depthwise(layer: LayerSpec, options: ConvolutionOptions) -> bool:
    window = options.window
    return options.group == layer.bottom_shapes[0][window.channel_axis] and max(window.dilation) == 1


@dataclass(frozen=True)
class _Content:
    """What a blob holds: a tensor in one axis order."""

    tensor: str
    form: Form
    n_bytes: int
    has_planes: bool


class _Trace:
    """Follows the blobs through the net; conversions to the other axis order are made once, as ``Blob`` makes them."""

    def __init__(self) -> None:
        self._contents: dict[str, _Content] = {}
        self._converted: set[str] = set()

    def run(self, layer: LayerSpec) -> LayerTensors:
        form = self._form(layer)
        makes: list[Tensor] = []
        reads = tuple(self._in_form(blob, form, layer, makes) for blob in layer.bottoms)
        rule = rule_of(layer)
        if _is_identity(layer):
            held = self._contents[layer.bottoms[0]]
            shapes = layer.definition.top_shapes
            made = [_Content(reads[0], form, held.n_bytes, len(shape) == 4) for shape in shapes]
        else:
            made = [
                _Content(f"{layer.name}/{top}", form, _VALUE_BYTES * prod(shape), len(shape) == 4)
                for top, shape in zip(layer.tops, layer.definition.top_shapes, strict=True)
            ]
            makes += [Tensor(top.tensor, layer.name, top.n_bytes) for top in made]
        kept: list[str] = []
        if layer.needs_backward:
            kept += [*(reads if rule.bottoms else ()), *(top.tensor for top in made if rule.tops)]
            own = rule.own(layer) + _image_copy_bytes(layer)
            if own:
                makes.append(Tensor(f"{layer.name}: own", layer.name, own))
                kept.append(makes[-1].name)
        self._contents.update(zip(layer.tops, made, strict=True))
        tops = tuple(top.tensor for top in made)
        return LayerTensors(layer, tuple(makes), reads, tuple(kept), tops, layer.type in _VALUE_BY_VALUE)

    def _form(self, layer: LayerSpec) -> Form:
        if layer.type in _CHANNELS_LAST and len(layer.bottom_shapes[0]) == 4:
            return "channels last"
        if layer.type in _EITHER and any(self._contents[blob].form == "channels last" for blob in layer.bottoms):
            return "channels last"
        return "caffe"

    def _in_form(self, blob: str, form: Form, layer: LayerSpec, makes: list[Tensor]) -> str:
        held = self._contents[blob]
        if not held.has_planes or held.form == form:
            return held.tensor
        name = f"{held.tensor} ({form})"
        if name not in self._converted:
            self._converted.add(name)
            makes.append(Tensor(name, layer.name, held.n_bytes))
        return name


def _image_copy_bytes(layer: LayerSpec) -> int:
    """Return the bytes of the copies of a convolution's bottoms that its groups read."""
    options = layer.definition.options
    if not isinstance(options, ConvolutionOptions) or rule_of(layer).bottoms:
        return 0
    return _VALUE_BYTES * _values(layer.bottom_shapes)


def gradient_scratch_bytes(layer: LayerSpec) -> int:
    """Return what its gradient takes besides its results while it is computed."""
    return _SCRATCH_TOPS.get(layer.type, 0) * _top_bytes(layer)
