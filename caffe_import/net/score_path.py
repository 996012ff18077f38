"""Layers between an input of a net and a result: the score before its activation, and the last convolution."""

from __future__ import annotations

from math import prod
from typing import Final

from caffe_import.net.net_spec import NetSpec

_ACTIVATIONS: Final = frozenset({"Softmax", "Sigmoid"})
_CONVOLUTION: Final = "Convolution"
_MAP_AXES: Final = 4


def score_before_activation(net: NetSpec, blob: str) -> str:
    """Return the input of the Softmax or Sigmoid that computes ``blob``, else ``blob``.

    A gradient through a saturated Softmax is nearly zero, so saliency maps take the score before.
    """
    producers = [layer for layer in net.layers if blob in layer.tops]
    if producers and producers[-1].type in _ACTIVATIONS and producers[-1].bottoms[0] != blob:
        return producers[-1].bottoms[0]
    return blob


def last_convolution(net: NetSpec, source: str, score: str) -> str | None:
    """Return the top of the last convolution on the way from ``source`` to ``score``; None without a convolution.

    A convolution whose top has a single pixel does not count: Grad-CAM needs a map.

    Args:
        net: The net.
        source: Blob with the pictures.
        score: Blob with the scores.
    """
    reached = {source}
    for layer in net.layers:
        if reached.intersection(layer.bottoms):
            reached.update(layer.tops)
    needed = {score}
    for layer in reversed(net.layers):
        if needed.isdisjoint(layer.tops):
            continue
        top = layer.tops[0]
        shape = net.blob_shapes[top]
        if layer.type == _CONVOLUTION and top in reached and len(shape) == _MAP_AXES and prod(shape[2:]) > 1:
            return top
        needed.update(layer.bottoms)
    return None
