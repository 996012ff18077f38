"""Devices of a placed net's layers and of the blobs that the layers read. No TensorFlow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from caffe_import.devices.compute_plan import Placement
from caffe_import.net.net_spec import LayerSpec, NetSpec


@dataclass(frozen=True)
class Residence:
    """Device numbers.

    Attributes:
        layers: Layer -> the devices that compute it, of a split layer all; its tops are on the first.
        bottoms: Layer and its bottoms -> device of each bottom. Layers without parameters may share a name.
        feeds: Fed blob -> the device that it is sent to, that of the first layer that reads it.
        blobs: Blob -> device of its last content.
    """

    layers: Mapping[str, tuple[int, ...]]
    bottoms: Mapping[tuple[str, tuple[str, ...]], tuple[int, ...]]
    feeds: Mapping[str, int]
    blobs: Mapping[str, int]


def residence(net: NetSpec, placement: Placement, fed: Collection[str]) -> Residence:
    """Follow the blobs of ``net`` through its layers.

    A Split layer computes nothing and is on the bottom's device, whatever the placement says.

    Args:
        net: The net.
        placement: Names every layer.
        fed: Blobs that are fed.
    """
    feeds = {blob: _first_reader(net, placement, blob) for blob in fed}
    layers: dict[str, tuple[int, ...]] = {}
    bottoms: dict[tuple[str, tuple[str, ...]], tuple[int, ...]] = {}
    blobs: dict[str, int] = {}
    for layer in net.layers:
        sources = tuple(blobs[name] for name in layer.bottoms)
        bottoms[layer.name, layer.bottoms] = sources
        on = sources[:1] if layer.type == "Split" else _devices_of(placement, layer)
        layers[layer.name] = on
        blobs.update({top: on[0] if layer.bottoms else feeds.get(top, on[0]) for top in layer.tops})
    return Residence(layers, bottoms, feeds, blobs)


def _devices_of(placement: Placement, layer: LayerSpec) -> tuple[int, ...]:
    split_devices = placement.split.get(layer.name)
    return (placement.device_of[layer.name],) if split_devices is None else tuple(split_devices)


def _first_reader(net: NetSpec, placement: Placement, blob: str) -> int:
    names = {blob}
    owner = None
    for layer in net.layers:
        if owner is None:
            owner = layer if blob in layer.tops else None
        elif names & set(layer.bottoms):
            if layer.type != "Split":
                return _devices_of(placement, layer)[0]
            names |= set(layer.tops)
    assert owner is not None, blob
    return _devices_of(placement, owner)[0]
