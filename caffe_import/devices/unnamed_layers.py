"""Devices of the layers that a placement does not name."""

from __future__ import annotations

from collections.abc import Mapping

from caffe_import.devices.compute_plan import Placement
from caffe_import.net.net_spec import NetSpec


def place_all(devices: Mapping[str, tuple[int, ...]], net: NetSpec, n_devices: int) -> Placement:
    """Return the placement of all layers.

    A layer without a line is on the device of the first bottom (the first device of a split layer). A layer without
    bottoms is on the device of the first placed reader, together with all unnamed layers between; without a placed
    reader, on device 0.

    Args:
        devices: Layer -> its device, or those that share its outputs.
        net: The net.
        n_devices: Devices there are.
    """
    decided: dict[int, int] = {}
    n_known = -1
    while n_known < len(decided):
        n_known = len(decided)
        layer_devices = _devices_of_layers(devices, net, decided)
    split = {name: where for name, where in devices.items() if len(where) > 1}
    named = {layer.name: at for layer, at in zip(net.layers, layer_devices, strict=True) if layer.name not in split}
    return Placement(n_devices, {name: 0 if at is None else at for name, at in named.items()}, split)


def _devices_of_layers(
    devices: Mapping[str, tuple[int, ...]], net: NetSpec, decided: dict[int, int]
) -> list[int | None]:
    """Return each layer's device, if known; add layer without bottoms -> device to ``decided``."""
    layer_devices: list[int | None] = []
    # Of each layer that follows from one without bottoms: that one.
    roots: list[int | None] = []
    makers: dict[str, int] = {}
    for position, layer in enumerate(net.layers):
        above = [makers[blob] for blob in layer.bottoms]
        device: int | None
        if layer.name in devices:
            root, device = None, devices[layer.name][0]
        else:
            root = roots[above[0]] if above else position
            device = layer_devices[above[0]] if root is None else decided.get(root)
        if device is not None:
            for maker in above:
                if (of_maker := roots[maker]) is not None:
                    decided.setdefault(of_maker, device)
        layer_devices.append(device)
        roots.append(root)
        makers.update((blob, position) for blob in layer.tops)
    return layer_devices
