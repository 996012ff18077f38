"""Sizes of the first samples, where samples differ in size: a net that cannot take a size is refused early."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.reshaped_net import MOST_SHAPES, reshaped
from deepspark_ops.sizes import size_text
from deepspark_ops.train.data.data_layers import FedLayer

FIRST_SAMPLES: Final = 100
_GRAPH_BYTES: Final = (2 * 2**20, 0.36 * 2**20)
"""Of a compiled training net and of each layer: 5.2, 9.5 and 18.8 MiB were measured for 10, 24 and 54 layers."""


def net_of_largest_sample(net: NetSpec, layers: Sequence[FedLayer]) -> tuple[NetSpec, str]:
    """Return the net for the largest of the first samples, and a note; the net itself and "" for samples of one size.

    Args:
        net: The net.
        layers: The net's fed layers.

    Raises:
        DataError: A sample is damaged, or does not fit the net.
        NetError: A layer cannot take the size of a sample.
    """
    sized = [layer for layer in layers if layer.takes_sizes]
    if not sized:
        return net, ""
    sizes: dict[tuple[tuple[str, Shape], ...], NetSpec] = {}
    n_samples = min(FIRST_SAMPLES, *(layer.samples.n_samples for layer in sized))
    for position in range(n_samples):
        shapes: dict[str, Shape] = {}
        for layer in sized:
            shapes.update(layer.shapes_of(layer.read_unlabelled(position, 1)))
        key = tuple(shapes.items())
        if key not in sizes:
            sizes[key] = reshaped(net, shapes)
    if len(sizes) == 1:
        return net, ""
    first = next(iter(sized[0].tops))
    areas = sorted({of_net.inputs[first][2:] for of_net in sizes.values()}, key=prod)
    smallest, largest = (" x ".join(map(str, area)) for area in (areas[0], areas[-1]))
    note = (
        f'layer "{sized[0].name}": {len(sizes)} sizes among the first {n_samples} samples, {smallest} to {largest}'
        " pixels; each pass has the size of its sample, and an export needs one size. The memory is forecast for the"
        f" largest; add about {size_text(graph_bytes(net))} for the graph of each size, of {MOST_SHAPES} at most"
    )
    return max(sizes.values(), key=_n_values), note


def graph_bytes(net: NetSpec) -> int:
    """Return about how many bytes a compiled training net keeps."""
    base, per_layer = _GRAPH_BYTES
    return int(base + per_layer * len(net.layers))


def _n_values(net: NetSpec) -> int:
    return sum(prod(shape) for shape in net.blob_shapes.values())
