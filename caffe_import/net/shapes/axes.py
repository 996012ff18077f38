"""Axis numbers as Caffe reads axis numbers: negative numbers count from the end."""

from __future__ import annotations

from math import prod
from typing import Final

from caffe_import.net.layer_registry import LayerRequest, Shape

MAX_AXES: Final = 32
"""Of one blob, in Caffe."""


def canonical_axis(request: LayerRequest, axis: int, rank: int, *, option: str) -> int:
    """Return ``axis`` counted from the front.

    Source: BVLC Caffe, include/caffe/blob.hpp, Blob::CanonicalAxisIndex.

    Args:
        request: The layer, for the message.
        axis: As written, -rank <= axis < rank.
        rank: Number of axes of the blob that the option refers to.
        option: The field that holds it, for the message, e.g. ``softmax_param.axis``.

    Raises:
        NetError: The blob has no such axis.
    """
    if not -rank <= axis < rank:
        finding = f"{option}={axis}: the blob has {rank} axes; allowed: {-rank} to {rank - 1}"
        raise request.refuse(finding)
    return axis % rank


def check_n_axes(request: LayerRequest, n_axes: int, title: str) -> None:
    """Check that a blob has no more axes than Caffe allows.

    Source: BVLC Caffe, include/caffe/blob.hpp, kMaxBlobAxes.

    Raises:
        NetError: It has more; the message does not list the extents.
    """
    if n_axes > MAX_AXES:
        finding = f"{title} would have {n_axes:,} axes; allowed: at most {MAX_AXES}"
        raise request.refuse(finding)


def split_at(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Return (elements before, extent of, elements after) ``axis``: Caffe's outer_num, channels, inner_num.

    Example:
        >>> split_at((2, 3, 4, 5), 1)
        (2, 3, 20)
    """
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def shape_text(shape: Shape) -> str:
    """Return a shape for messages: ``(64, 3, 28, 28)``, with commas but no trailing one.

    Example:
        >>> shape_text((7,)), shape_text(())
        ('(7)', '()')
    """
    return f"({', '.join(map(str, shape))})"


def require_same_shape(request: LayerRequest, first: int, second: int) -> None:
    """Check that two bottoms have equal shapes.

    Raises:
        NetError: They differ; the message names both blobs.
    """
    shapes, names = request.bottom_shapes, request.message.bottom
    if shapes[first] != shapes[second]:
        finding = (
            f'bottom "{names[second]}" has shape {shape_text(shapes[second])}; '
            f'expected that of bottom "{names[first]}", {shape_text(shapes[first])}'
        )
        raise request.refuse(finding)


def require_rank(request: LayerRequest, bottom: int, rank: int, *, axes: str) -> Shape:
    """Return the shape of a bottom that must have ``rank`` axes.

    Raises:
        NetError: It has another number of axes; the message names the expected ``axes``.
    """
    shape = request.bottom_shapes[bottom]
    if len(shape) != rank:
        finding = f'bottom "{request.message.bottom[bottom]}" has shape {shape_text(shape)}; expected {axes}'
        raise request.refuse(finding)
    return shape
