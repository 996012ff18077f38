"""Memory of a training step, layer by layer, from shapes alone."""

from __future__ import annotations

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


def layer_rows(net: NetSpec) -> tuple[LayerMemory, ...]:
    """Return the memory of each layer in the order of execution, automatic Split layers included."""
    layers = layer_tensors(net)
    kept = {name for found in layers for name in found.kept}
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
