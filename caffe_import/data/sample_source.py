"""The interface of every source of samples, and reading that wraps around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from caffe_import.net.layer_registry import Shape

Column = npt.NDArray[Any]
"""The values of one top for some samples, first axis the sample.

Images of several shapes are an array (n,) of objects, each a (C, H, W) array.
"""


class SampleSource(Protocol):
    """Samples of one data layer in Caffe's order. One thread at a time; files open at the first use, after a fork too.

    ``is_transformed``: does the layer's ``transform_param`` apply to the first top (not for HDF5 and memory)?
    """

    is_transformed: bool

    def __len__(self) -> int:
        """Return the number of samples; at least one."""
        ...

    def sample_shapes(self) -> tuple[Shape, ...]:
        """Return one shape per top without the batch axis, before any crop, from the first sample."""
        ...

    def read(self, start: int, count: int) -> list[Column]:
        """Return samples ``[start, start + count)``, one fresh array per top; the range must be inside.

        Images are (count, C, H, W) uint8 or float32, BGR, or (count,) objects if their shapes differ; labels of image
        sources are (count,) int64.

        Raises:
            DataSourceError: A sample is damaged.
        """
        ...

    def close(self) -> None:
        """Close the files; the next read opens them again."""
        ...


def read_wrapped(source: SampleSource, position: int, count: int) -> list[Column]:
    """Return ``count`` samples from ``position`` on, wrapping around at the end as Caffe's batches do.

    ``position`` may be beyond the end (it is taken modulo the length); ``count`` may exceed the length.
    """
    n_samples = len(source)
    position %= n_samples
    parts: list[list[Column]] = []
    while count > 0:
        piece = min(count, n_samples - position)
        parts.append(source.read(position, piece))
        position, count = 0, count - piece
    if len(parts) == 1:
        return parts[0]
    return [join_columns(columns) for columns in zip(*parts, strict=True)]


def column_of(images: Sequence[Column]) -> Column:
    """Return images (C, H, W) as an array (n, C, H, W), or as (n,) objects if shapes or types differ."""
    if len({(image.shape, image.dtype) for image in images}) == 1:
        return np.stack(images)
    column = np.empty(len(images), np.object_)
    for i, image in enumerate(images):
        column[i] = image
    return column


def compacted(column: Column) -> Column:
    """Return images (n,) of objects as an array (n, C, H, W) if their shapes and types are equal."""
    return column_of(list(column)) if column.dtype == np.object_ else column


def join_columns(parts: Sequence[Column]) -> Column:
    """Return consecutive parts of a column as a single column; a part may have other shapes than the next."""
    if len({(part.shape[1:], part.dtype) for part in parts}) == 1:
        return np.concatenate(parts)
    return column_of([image for part in parts for image in part])


def image_shapes(images: Column) -> list[Shape]:
    """Return the shape (C, H, W) of each image of a column."""
    return [image.shape for image in images] if images.dtype == np.object_ else [images.shape[1:]] * len(images)


def check_range(start: int, count: int, n_samples: int) -> None:
    """Refuse a range outside the source: a mistake of the calling code, not of a user."""
    if start < 0 or count < 1 or start + count > n_samples:
        msg = f"samples [{start}, {start + count}) asked of a source with {n_samples}"
        raise ValueError(msg)
