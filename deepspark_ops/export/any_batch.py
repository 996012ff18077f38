"""A net that takes batches of any size, where its layers allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import LayerSpec, NetSpec

_ANY = -1


def net_of_any_batch(build: Callable[[int], NetSpec]) -> NetSpec | None:
    """Return the net with -1 for the batch axis in every shape that depends on it; None if it is another axis.

    A Caffe net has fixed shapes. Built for two batch sizes, what differs is what depends on the batch; a reshape to
    a shape with one -1 means the same for every size.

    Args:
        build: Returns the net for a batch size.
    """
    small, large = build(2), build(3)
    layers = []
    for one, other in zip(small.layers, large.layers, strict=True):
        tops = _merge_all(one.definition.top_shapes, other.definition.top_shapes)
        bottoms = _merge_all(one.bottom_shapes, other.bottom_shapes)
        if tops is None or bottoms is None:
            return None
        layers.append(_with_shapes(one, bottoms, tops))
    return replace(small, layers=tuple(layers))


def _with_shapes(layer: LayerSpec, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> LayerSpec:
    return replace(layer, bottom_shapes=bottoms, definition=replace(layer.definition, top_shapes=tops))


def _merge_all(ones: tuple[Shape, ...], others: tuple[Shape, ...]) -> tuple[Shape, ...] | None:
    merged = [_merge(one, other) for one, other in zip(ones, others, strict=True)]
    return tuple(shape for shape in merged if shape is not None) if None not in merged else None


def _merge(one: Shape, other: Shape) -> Shape | None:
    """Return the common shape, -1 in front if the first axes differ; None if another axis does."""
    if one == other:
        return one
    return (_ANY, *one[1:]) if one[1:] == other[1:] else None
