"""The smallest segments of a net: the strictest test of layers that the backward pass computes again."""

from __future__ import annotations

from itertools import pairwise

from caffe_import.devices.segments import allowed_cuts
from caffe_import.net.net_spec import NetSpec


def finest_segments(net: NetSpec) -> tuple[tuple[str, ...], ...]:
    """Return every smallest segment that may be computed again, whether this saves memory or not."""
    return tuple(
        tuple(layer.name for layer in net.layers[start:stop])
        for start, stop in pairwise(allowed_cuts(net))
        if not any(layer.definition.is_data for layer in net.layers[start:stop])
    )
