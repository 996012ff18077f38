"""Axes of a bottom covered by the values of Scale and Bias; the values are repeated over the other axes."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerRequest, Shape
from caffe_import.net.shapes.axes import canonical_axis, shape_text


def covered_axes(request: LayerRequest, axis: int, num_axes: int, *, option: str) -> tuple[int, Shape]:
    """Return (first covered axis, shape of the learned blob).

    Source: BVLC Caffe, src/caffe/layers/scale_layer.cpp and bias_layer.cpp, LayerSetUp.

    Args:
        request: A layer with one bottom.
        axis: As written; may be negative.
        num_axes: Number of axes from there on; -1: all later axes; 0: a single number for all.
        option: Name of the parameter message, for errors.

    Raises:
        NetError: The bottom has not that many axes.
    """
    shape = request.bottom_shapes[0]
    first = canonical_axis(request, axis, len(shape), option=f"{option}.axis")
    if num_axes < -1 or first + num_axes > len(shape):
        finding = (
            f"{option}.num_axes={num_axes} from axis {first} on does not fit a bottom of shape {shape_text(shape)}; "
            f"allowed: -1 to {len(shape) - first}"
        )
        raise request.refuse(finding)
    stop = len(shape) if num_axes == -1 else first + num_axes
    return first, shape[first:stop]


def require_covered(request: LayerRequest, axis: int, *, option: str) -> int:
    """Return the canonical axis from which the second bottom's shape equals the first's.

    Raises:
        NetError: The shapes do not match there.
    """
    shape, values = request.bottom_shapes
    # Caffe does not look at the axis where the second bottom is a single number.
    first = canonical_axis(request, axis, len(shape), option=option) if values else 0
    if shape[first : first + len(values)] != values:
        names = request.message.bottom
        finding = (
            f'bottom "{names[1]}" has shape {shape_text(values)}; expected the extents of bottom "{names[0]}" '
            f"{shape_text(shape)} from axis {first} on"
        )
        raise request.refuse(finding)
    return first
