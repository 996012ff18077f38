"""Statistics of a weights file, blob by blob, and the differences of two files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from caffe_import.files.blob_proto import FloatArray, array_from_blob, has_shape
from caffe_import.net.layer_registry import Shape
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class BlobStatistics:
    """One blob of a weights file. Statistics of the finite values, in float64; 0 without finite values.

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
    """A blob with different values in two files.

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

    A shape of old files, four axes with leading 1s, equals the shape without the leading 1s, as in Caffe. NaN equals
    NaN.
    """
    first_blobs, second_blobs = dict(_blobs(first)), dict(_blobs(second))
    blob_differences = []
    for key in [*first_blobs, *(key for key in second_blobs if key not in first_blobs)]:
        first_values, second_values = first_blobs.get(key), second_blobs.get(key)
        difference = _difference(key, first_values, second_values)
        if difference is not None:
            blob_differences.append(difference)
    return blob_differences


def _blobs(net: caffe_pb2.NetParameter) -> Iterator[tuple[tuple[str, int], FloatArray]]:
    for layer in net.layer:
        for index, blob in enumerate(layer.blobs):
            yield (layer.name, index), array_from_blob(blob, where=f'layer "{layer.name}" blob {index}')


def _of_blob(layer: str, layer_type: str, index: int, values: FloatArray) -> BlobStatistics:
    finite = values[np.isfinite(values)].astype(np.float64)
    counted = finite if finite.size else np.zeros(1)
    return BlobStatistics(
        layer=layer,
        layer_type=layer_type,
        index=index,
        shape=values.shape,
        mean=float(counted.mean()),
        std=float(counted.std()),
        smallest=float(counted.min()),
        largest=float(counted.max()),
        zeros=float((values == 0).mean()) if values.size else 0.0,
        n_not_finite=values.size - finite.size,
    )


def _difference(
    key: tuple[str, int], first_values: FloatArray | None, second_values: FloatArray | None
) -> BlobDifference | None:
    layer, index = key
    shapes = (
        None if first_values is None else first_values.shape,
        None if second_values is None else second_values.shape,
    )
    if (
        first_values is None
        or second_values is None
        or not (
            has_shape(first_values.shape, second_values.shape) or has_shape(second_values.shape, first_values.shape)
        )
    ):
        return BlobDifference(layer, index, shapes)
    flat, flat_second = first_values.reshape(-1).astype(np.float64), second_values.reshape(-1).astype(np.float64)
    differs = (flat != flat_second) & ~(np.isnan(flat) & np.isnan(flat_second))
    if not differs.any():
        return None
    distances = np.abs(flat[differs] - flat_second[differs])
    norm = float(np.linalg.norm(flat))
    relative = float(np.linalg.norm(distances)) / norm if norm else float("inf")
    return BlobDifference(layer, index, shapes, float(distances.max()), relative, int(differs.sum()))
