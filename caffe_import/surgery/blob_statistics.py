"""What is in a weights file, blob by blob; and how two files differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from caffe_import.files.blob_proto import FloatArray, array_from_blob, has_shape
from caffe_import.net.layer_registry import Shape
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class BlobStatistics:
    """One blob of a weights file. Statistics are those of the finite values, in float64; 0 where there are none.

    Attributes:
        layer: Name of its layer.
        layer_type: Type of that; empty in HDF5 files, which do not have it.
        index: Number of the blob in its layer: 0 for weights, 1 for the bias in most.
        shape: As stored.
        mean: Mean of the values.
        std: Their standard deviation (of the population).
        smallest: The smallest.
        largest: The largest.
        zeros: Share of exact zeros among all values, 0 to 1.
        n_not_finite: NaN and infinite values.
    """

    layer: str
    layer_type: str
    index: int
    shape: Shape
    mean: float
    std: float
    smallest: float
    largest: float
    zeros: float
    n_not_finite: int


@dataclass(frozen=True)
class BlobDifference:
    """One blob that two files do not agree on.

    Attributes:
        layer: Name of its layer.
        index: Number of the blob in its layer.
        shapes: In the first file and in the second; None where it is not there.
        largest: Largest absolute difference of two values; None where shapes differ.
        relative: Euclidean norm of the difference over that of the first file's blob; infinite if that is zero.
        n_different: How many values differ; None where shapes differ.
    """

    layer: str
    index: int
    shapes: tuple[Shape | None, Shape | None]
    largest: float | None = None
    relative: float | None = None
    n_different: int | None = None


def statistics(net: caffe_pb2.NetParameter) -> list[BlobStatistics]:
    """Return the statistics of every blob, in the file's order."""
    types = {layer.name: layer.type for layer in net.layer}
    return [_of_blob(layer, types[layer], index, values) for (layer, index), values in _blobs(net)]


def differences(first: caffe_pb2.NetParameter, second: caffe_pb2.NetParameter) -> list[BlobDifference]:
    """Return the blobs that differ, by layer and index, in the order of ``first``, then what ``second`` alone has.

    The four axes of old files are the same shape as their last ones with ones in front, as Caffe takes them. NaN equals
    NaN.
    """
    ones, others = dict(_blobs(first)), dict(_blobs(second))
    found = []
    for key in [*ones, *(key for key in others if key not in ones)]:
        one, other = ones.get(key), others.get(key)
        difference = _difference(key, one, other)
        if difference is not None:
            found.append(difference)
    return found


def _blobs(net: caffe_pb2.NetParameter) -> Iterator[tuple[tuple[str, int], FloatArray]]:
    for layer in net.layer:
        for index, blob in enumerate(layer.blobs):
            yield (layer.name, index), array_from_blob(blob, where=f'layer "{layer.name}" blob {index}')


def _of_blob(layer: str, layer_type: str, index: int, values: FloatArray) -> BlobStatistics:
    finite = values[np.isfinite(values)].astype(np.float64)
    some = finite if finite.size else np.zeros(1)
    return BlobStatistics(
        layer=layer,
        layer_type=layer_type,
        index=index,
        shape=values.shape,
        mean=float(some.mean()),
        std=float(some.std()),
        smallest=float(some.min()),
        largest=float(some.max()),
        zeros=float((values == 0).mean()) if values.size else 0.0,
        n_not_finite=values.size - finite.size,
    )


def _difference(key: tuple[str, int], one: FloatArray | None, other: FloatArray | None) -> BlobDifference | None:
    layer, index = key
    shapes = (None if one is None else one.shape, None if other is None else other.shape)
    if one is None or other is None or not (has_shape(one.shape, other.shape) or has_shape(other.shape, one.shape)):
        return BlobDifference(layer, index, shapes)
    flat, others = one.reshape(-1).astype(np.float64), other.reshape(-1).astype(np.float64)
    differs = (flat != others) & ~(np.isnan(flat) & np.isnan(others))
    if not differs.any():
        return None
    apart = np.abs(flat[differs] - others[differs])
    norm = float(np.linalg.norm(flat))
    relative = float(np.linalg.norm(apart)) / norm if norm else float("inf")
    return BlobDifference(layer, index, shapes, float(apart.max()), relative, int(differs.sum()))
