"""Memory kept by each layer of a training net between forward and backward pass, computed from shapes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from caffe_import.devices.layer_tensors import LayerTensors, layer_tensors
from caffe_import.net.net_spec import NetSpec


@dataclass(frozen=True)
class LayerMemory:
    """Memory of a layer during a pass of a training step.

    Attributes:
        layer: Its name.
        activation_bytes: Tensors that it makes and that some gradient reads: kept from the forward pass on.
        param_bytes: The parameter blobs that it owns, once; gradients and history come on top.
    """

    layer: str
    activation_bytes: int
    param_bytes: int


class Needs(NamedTuple):
    """Tensors for the gradient of a layer.

    Attributes:
        segment: Number of the layer's segment; None outside of segments.
        stored: Tensors stored since the forward pass, including the inputs of a segment's recomputation.
        recomputed: Tensors that the layer's segment computes again.
    """

    segment: int | None
    stored: frozenset[str]
    recomputed: frozenset[str]


def needs_of_layers(layers: Sequence[LayerTensors], segments: Sequence[Sequence[str]]) -> tuple[Needs, ...]:
    """Return what each layer needs; ``segments`` as ``ComputePlan.recompute``."""
    segment_of = {name: number for number, segment in enumerate(segments) for name in segment}
    made_in = {
        tensor.name: segment_of.get(tensors_of_layer.layer.name)
        for tensors_of_layer in layers
        for tensor in tensors_of_layer.makes
    }
    every = []
    for tensors_of_layer in layers:
        segment = segment_of.get(tensors_of_layer.layer.name)
        needed = frozenset(
            tensors_of_layer.stored if segment is None else (*tensors_of_layer.stored, *tensors_of_layer.reads)
        )
        computed_again = frozenset(name for name in needed if segment is not None and made_in[name] == segment)
        every.append(Needs(segment, needed - computed_again, computed_again & frozenset(tensors_of_layer.stored)))
    return tuple(every)


def layer_rows(net: NetSpec, segments: Sequence[Sequence[str]] = ()) -> tuple[LayerMemory, ...]:
    """Return the memory of each layer in the order of execution, automatic Split layers included.

    Args:
        net: The TRAIN net.
        segments: As ``ComputePlan.recompute``: what only a segment's own layers read is computed again, not kept.
    """
    layers = layer_tensors(net)
    kept_names = {name for needs in needs_of_layers(layers, segments) for name in needs.stored}
    owned: dict[str, int] = {}
    for entry in net.params.entries:
        owned[entry.layer] = owned.get(entry.layer, 0) + 4 * entry.size
    return tuple(
        LayerMemory(
            layer=tensors_of_layer.layer.name,
            activation_bytes=sum(tensor.n_bytes for tensor in tensors_of_layer.makes if tensor.name in kept_names),
            param_bytes=owned.get(tensors_of_layer.layer.name, 0),
        )
        for tensors_of_layer in layers
    )
