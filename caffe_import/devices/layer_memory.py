"""Memory of a training step, layer by layer, from shapes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from caffe_import.devices.layer_tensors import layer_tensors
from caffe_import.net.net_spec import NetSpec


@dataclass(frozen=True)
class LayerMemory:
    """What one layer takes while a pass of a training step is computed.

    Attributes:
        layer: Its name.
        activation_bytes: Tensors that it makes and that some gradient reads: kept from the forward pass on.
        param_bytes: The parameter blobs that it owns, once; gradients and history come on top.
    """

    layer: str
    activation_bytes: int
    param_bytes: int


def layer_rows(net: NetSpec, segments: Sequence[Sequence[str]] = ()) -> tuple[LayerMemory, ...]:
    """Return the memory of each layer in the order of execution, automatic Split layers included.

    Args:
        net: The TRAIN net.
        segments: As ``ComputePlan.recompute``: what only a segment's own layers read is computed again, not kept.
    """
    layers = layer_tensors(net)
    segment_of = {name: number for number, segment in enumerate(segments) for name in segment}
    made_in = {tensor.name: segment_of.get(found.layer.name) for found in layers for tensor in found.makes}
    kept = set()
    for found in layers:
        inside = segment_of.get(found.layer.name)
        needed = found.kept if inside is None else (*found.kept, *found.reads)
        kept |= {name for name in needed if inside is None or made_in[name] != inside}
    owned: dict[str, int] = {}
    for entry in net.params.entries:
        owned[entry.layer] = owned.get(entry.layer, 0) + 4 * entry.size
    return tuple(
        LayerMemory(
            layer=found.layer.name,
            activation_bytes=sum(tensor.n_bytes for tensor in found.makes if tensor.name in kept),
            param_bytes=owned.get(found.layer.name, 0),
        )
        for found in layers
    )
