"""Tensors computed by each layer and tensors read again by the layer's gradient: the memory of a training step.

Each layer type declares the tensors of the gradient (``LayerTraits``), as the emitter in ``tf_graph/layers`` computes
the layer. TensorFlow keeps a tensor as long as a later operation reads the tensor. Nothing here imports TensorFlow;
``tests/integration/devices`` compares the figures with TensorFlow's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from caffe_import.devices.fused_layers import layers_as_computed
from caffe_import.net.layer_traits import VALUE_BYTES, n_values
from caffe_import.net.net_spec import LayerSpec, NetSpec

Form = Literal["caffe", "channels last"]


@dataclass(frozen=True)
class Tensor:
    """A tensor of a pass with separate memory.

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
    """Tensors that a layer computes and reads.

    Attributes:
        layer: The layer, as ``layers_as_computed``.
        makes: New tensors; none where its tops are its bottom's memory.
        reads: Tensors that its forward pass reads.
        stored: Tensors that its gradient reads; empty where no gradient passes through the layer.
        tops: The tensor that holds each top, in the order of the tops.
        reuses: Does it write its top over its bottom, and its bottom's gradient over its top's?
    """

    layer: LayerSpec
    makes: tuple[Tensor, ...]
    reads: tuple[str, ...]
    stored: tuple[str, ...]
    tops: tuple[str, ...]
    reuses: bool


def layer_tensors(net: NetSpec) -> tuple[LayerTensors, ...]:
    """Return what each layer of ``net`` makes and reads, in the order of execution."""
    trace = _Trace()
    return tuple(trace.run(layer) for layer in layers_as_computed(net))


@dataclass(frozen=True)
class _Content:
    """Content of a blob: a tensor in one axis order."""

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
        traits = layer.traits
        if traits.is_identity:
            held = self._contents[layer.bottoms[0]]
            shapes = layer.definition.top_shapes
            contents = [_Content(reads[0], form, held.n_bytes, len(shape) == 4) for shape in shapes]
        else:
            contents = [
                _Content(f"{layer.name}/{top}", form, VALUE_BYTES * prod(shape), len(shape) == 4)
                for top, shape in zip(layer.tops, layer.definition.top_shapes, strict=True)
            ]
            makes += [Tensor(top.tensor, layer.name, top.n_bytes) for top in contents]
        kept_names: list[str] = []
        if layer.needs_backward:
            kept_names += [
                *(reads if traits.keeps_bottoms else ()),
                *(top.tensor for top in contents if traits.keeps_tops),
            ]
            n_bytes = traits.kept_bytes(layer.bottom_shapes, layer.definition.top_shapes)
            if n_bytes:
                makes.append(Tensor(f"{layer.name}: own", layer.name, n_bytes))
                kept_names.append(makes[-1].name)
        self._contents.update(zip(layer.tops, contents, strict=True))
        tops = tuple(top.tensor for top in contents)
        return LayerTensors(layer, tuple(makes), reads, tuple(kept_names), tops, traits.reuses_bottom)

    def _form(self, layer: LayerSpec) -> Form:
        if layer.traits.axis_order == "channels last" and len(layer.bottom_shapes[0]) == 4:
            return "channels last"
        is_followed = layer.traits.axis_order == "its bottoms'"
        if is_followed and any(self._contents[blob].form == "channels last" for blob in layer.bottoms):
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


def gradient_scratch_bytes(layer: LayerSpec) -> int:
    """Return the temporary memory of a layer's gradient, besides its results."""
    return layer.traits.scratch_tops * VALUE_BYTES * n_values(layer.definition.top_shapes[:1])
