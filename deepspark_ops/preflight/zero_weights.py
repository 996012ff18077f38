"""Weights that start at 0 and stay 0, or whose units stay equal, by values and gradients of the first steps.

A layer of zero weights gives a constant, and passes no gradient down. Its own weights learn if a gradient reaches the
layer and its input is not 0. So the rule follows constants up the net and gradients down, and repeats with the layers
that have learned, until no further layer learns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from caffe_import.layers.activations import ReLUOptions
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.net.shapes.pooled_windows import PoolingOptions
from caffe_import.proto import caffe_pb2

_WEIGHTED: Final = (
    *("Convolution", "Deconvolution", "DepthwiseConvolution", "InnerProduct"),
    *("Embed", "LSTM", "RNN"),
)
"""Types with weights. An RNN of zeros holds two such layers, of which neither learns."""
_KEEPS_ZERO: Final = frozenset(
    "AbsVal BatchNorm Concat Crop Dropout ELU Eltwise LRN MVN PReLU Permute Pooling SPP ShuffleChannel Slice".split()
)
_KEEPS_CONSTANTS: Final = ("Flatten", "Reshape", "Split")
_OF_SINGLE_VALUES: Final = (*_KEEPS_CONSTANTS, "BatchNorm", "ELU", "Pooling", "ReLU", "Sigmoid", "TanH")
"""Types that treat all channels alike."""
_ALIKE_BELOW: Final = ("Convolution", "InnerProduct")
_Constants = Sequence[Sequence[float | None]]
"""For each layer, the value of each bottom where all its values are equal whatever the sample; else None."""


@dataclass(frozen=True)
class ZeroWeights:
    """Layers whose weights start at 0, by name, in the order of the net.

    Attributes:
        stay: The gradient of the weights is 0 in every step.
        stay_equal: All units get the same gradient in every step, and compute the same.
    """

    stay: tuple[str, ...]
    stay_equal: tuple[str, ...]


def zero_weights(net: NetSpec, filled: Collection[str]) -> ZeroWeights:
    """Return the layers that zero weights keep from learning.

    Args:
        net: Of phase TRAIN.
        filled: Names of layers whose weights come from a file.
    """
    start = frozenset(
        layer.name
        for layer in net.layers
        if layer.type in _WEIGHTED and _owner(net, layer) == layer.name not in filled and _constant(layer, 0) == 0
    )
    zero, moved = start, frozenset[str]()
    first_constants = constants = _constants(net, zero, moved)
    while True:
        reached = _reached(net, zero, constants)
        learning, with_bias = set(), set()
        for layer, values in zip(net.layers, constants, strict=True):
            if layer.name not in reached:
                continue
            if layer.type in _WEIGHTED[:-1] and layer.param_propagate_down[0] and values[0] != 0:
                learning.add(_owner(net, layer))
            if any(layer.param_propagate_down[1:]):
                with_bias.add(layer.name)
        if not (zero & learning or with_bias - moved):
            break
        zero, moved = zero - learning, moved | with_bias
        constants = _constants(net, zero, moved)
    equal = _with_equal_units(net, start, filled, first_constants) - zero
    names = [layer.name for layer in net.layers]
    return ZeroWeights(*(tuple(name for name in names if name in some) for some in (zero, equal)))


def _owner(net: NetSpec, layer: LayerSpec) -> str:
    """Return the layer that owns the weights of a layer, itself if it shares none."""
    return net.params.entry(layer.name, 0).layer if layer.definition.blobs else layer.name


def _constant(layer: LayerSpec, index: int) -> float | None:
    """Return the value with which a blob starts, 0 without the blob; None for random values."""
    blobs = layer.definition.blobs
    filler = blobs[index].filler if index < len(blobs) else caffe_pb2.FillerParameter()
    return filler.value if filler.type == "constant" else None


def _constants(net: NetSpec, zero: AbstractSet[str], moved: AbstractSet[str]) -> _Constants:
    """Follow constants up the net; ``moved``: layers whose bias has learned."""
    values: dict[str, float | None] = {}
    of_layers = []
    for layer in net.layers:
        bottoms = [values.get(bottom) for bottom in layer.bottoms]
        of_layers.append(bottoms)
        top = None if layer.name in moved else _top(layer, bottoms, is_zero=_owner(net, layer) in zero)
        values.update(dict.fromkeys(layer.tops, top))
    return of_layers


def _top(layer: LayerSpec, bottoms: Sequence[float | None], *, is_zero: bool) -> float | None:
    """Return the constant of a layer's tops, None without."""
    is_of_zeros = bool(bottoms) and all(value == 0 for value in bottoms)
    if is_zero or (is_of_zeros and layer.type in (*_WEIGHTED, "Scale")):
        bias = _constant(layer, 1)
        return bias if bias == 0 or layer.type not in ("LSTM", "RNN") else None
    value, options = bottoms[0] if bottoms else None, layer.definition.options
    if value is None or (is_of_zeros and layer.type in _KEEPS_ZERO):
        return value
    if isinstance(options, ReLUOptions):
        return max(value, value * options.negative_slope)
    if layer.type == "Sigmoid":
        return 1 / (1 + math.exp(-value))
    if layer.type == "TanH":
        return math.tanh(value)
    is_kept = layer.type in _KEEPS_CONSTANTS or (isinstance(options, PoolingOptions) and options.method == "MAX")
    return value if is_kept else None


def _reached(net: NetSpec, zero: AbstractSet[str], constants: _Constants) -> set[str]:
    """Follow gradients down the net, and return the layers whose tops get a gradient."""
    has_gradient: dict[str, bool] = {}
    reached = set()
    for layer, values in reversed(list(zip(net.layers, constants, strict=True))):
        is_reached = any([has_gradient.pop(top, False) for top in layer.tops]) or any(layer.loss_weights)
        if is_reached:
            reached.add(layer.name)
        is_passed = is_reached and _owner(net, layer) not in zero and not _is_flat(layer, values)
        for bottom, goes_down in zip(layer.bottoms, layer.propagate_down, strict=True):
            has_gradient[bottom] = is_passed and goes_down
    return reached


def _is_flat(layer: LayerSpec, bottoms: Sequence[float | None]) -> bool:
    """Whether a layer's slope is 0 at its constant bottom."""
    options, value = layer.definition.options, bottoms[0] if bottoms else None
    if value is None:
        return False
    return (isinstance(options, ReLUOptions) and value <= 0 == options.negative_slope) or (
        layer.type == "AbsVal" and value == 0
    )


def _with_equal_units(net: NetSpec, zero: AbstractSet[str], filled: Collection[str], constants: _Constants) -> set[str]:
    """Return the layers of several units that start equal, and get equal gradients from constant weights above."""
    is_equal: dict[str, bool] = {}
    with_equal_units = set()
    for layer, values in reversed(list(zip(net.layers, constants, strict=True))):
        tops_equal = all([is_equal.pop(top, False) for top in layer.tops]) and not any(layer.loss_weights)
        owner, is_constant = _owner(net, layer), values[:1] not in ([], [None])
        n_units = layer.definition.blobs[0].shape[0] if layer.definition.blobs else 1
        if tops_equal and owner in zero and layer.type in _ALIKE_BELOW and n_units > 1:
            with_equal_units.add(owner)
        is_below = layer.type in _OF_SINGLE_VALUES and tops_equal
        if layer.type in _ALIKE_BELOW and owner not in filled:
            is_below = _constant(layer, 0) is not None and layer.message.convolution_param.group == 1
        is_equal.update(dict.fromkeys(layer.bottoms, is_below and is_constant))
    return with_equal_units
