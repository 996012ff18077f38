"""Batches from a random generator: properties of any random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data.transform import TransformOptions
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.parity.feeds import LayerBatches
from caffe_import.parity.findings import Findings
from caffe_import.parity.setting import BOUNDS
from caffe_import.tf_graph.predict import compile_forward

Array = npt.NDArray[Any]

# Two samples' estimates rarely differ by more than this many standard errors.
_SPREADS = 6.0


def check_random_batches(
    layer: LayerSpec, net: NetSpec, archive: Mapping[str, Array], n_batches: int, findings: Findings
) -> None:
    """Check the properties of the first ``n_batches`` batches of a layer with random numbers."""
    _check_of(layer)(layer, net, archive, n_batches, findings)


def _check_of(layer: LayerSpec) -> Callable[[LayerSpec, NetSpec, Mapping[str, Array], int, Findings], None]:
    if layer.type == "DummyData":
        return _check_drawn_values
    images, rows = layer.message.image_data_param, layer.message.hdf5_data_param
    if images.shuffle or rows.shuffle or images.rand_skip or layer.message.data_param.rand_skip:
        return _check_any_order
    return _check_in_order


def _check_drawn_values(
    layer: LayerSpec, net: NetSpec, archive: Mapping[str, Array], n_batches: int, findings: Findings
) -> None:
    """Check that the values of both sides have equal means and spreads, within the sampling error."""
    forward = compile_forward(net, n_threads=1, outputs=layer.tops, device=findings.setting.device)
    drawn = [forward(np.zeros(0, np.float32), {}, seed=k) for k in range(n_batches)]
    for top in layer.tops:
        our_values = np.stack([blobs[top] for blobs in drawn]).astype(np.float64)
        caffe_values = np.stack([archive[f"batch{k}/{top}"] for k in range(1, n_batches + 1)]).astype(np.float64)
        findings.agree(f"shape of {top}", our_values.shape, caffe_values.shape)
        reach = (
            _SPREADS * caffe_values.std() * np.sqrt(2 / caffe_values.size)
            + findings.bounds.forward * np.abs(caffe_values).max()
        )
        for statistic, our_value, their_value, allowed in (
            ("mean", our_values.mean(), caffe_values.mean(), reach),
            ("standard deviation", our_values.std(), caffe_values.std(), reach / np.sqrt(2)),
        ):
            findings.hold(
                claim=bool(abs(our_value - their_value) <= allowed),
                otherwise=f"{top}: {statistic} {our_value:.4g}, Caffe has {their_value:.4g}",
            )


def _check_any_order(
    layer: LayerSpec, net: NetSpec, archive: Mapping[str, Array], n_batches: int, findings: Findings
) -> None:
    """Check that each of Caffe's items is a record of the source, with the other values of the record."""
    batches = LayerBatches(layer, net.phase)
    records = list(zip(*batches.source.read(0, len(batches.source)), strict=True))
    for k in range(1, n_batches + 1):
        rows = [archive[f"batch{k}/{top}"] for top in layer.tops]
        for item, (first, *caffe_columns) in enumerate(zip(*rows, strict=True)):
            is_record = any(
                all(
                    np.array_equal(np.float32(our_value), caffe_value)
                    for our_value, caffe_value in zip(our_columns, caffe_columns, strict=False)
                )
                and _is_of(record, first, batches, net)
                for record, *our_columns in records
            )
            findings.hold(claim=is_record, otherwise=f"batch{k}: Caffe's item {item} is none of the source's records")


def _is_of(record: Array, item: Array, batches: LayerBatches, net: NetSpec) -> bool:
    if not batches.source.is_transformed:
        return bool(np.array_equal(np.float32(record), item))
    return _origin(record, item, batches.options, net.phase) is not None


def _check_in_order(
    layer: LayerSpec, net: NetSpec, archive: Mapping[str, Array], n_batches: int, findings: Findings
) -> None:
    """Check that each item, Caffe's and ours, is a crop or flip of the next record."""
    image_top, *other_tops = layer.tops
    origins: set[tuple[int, int, bool]] = set()
    with LayerBatches(layer, net.phase) as batches:
        stored_batches = [batches.read() for _ in range(n_batches)]
    for k, stored in enumerate(stored_batches, start=1):
        our_columns = batches.transformed(stored)
        caffe_images = archive[f"batch{k}/{image_top}"]
        for whose, images in (("our", our_columns[0]), ("Caffe's", caffe_images)):
            for item, (record, image) in enumerate(zip(stored[0], images, strict=True)):
                origin = _origin(record, image, batches.options, net.phase)
                findings.hold(
                    claim=origin is not None,
                    otherwise=f"batch{k}: {whose} item {item} is no crop or flip of its record",
                )
                if origin is not None and whose == "our":
                    origins.add(origin)
        for top, column in zip(other_tops, our_columns[1:], strict=True):
            findings.compare(f"batch{k}/{top}", column, archive[f"batch{k}/{top}"], findings.bounds.forward)
    findings.hold(claim=len(origins) > 1, otherwise="our items all have the same place and flip")


def _origin(record: Array, image: Array, options: TransformOptions, phase: str) -> tuple[int, int, bool] | None:
    """Return the (row, column, flipped) of the crop of ``record`` that gives ``image``; None if no crop does."""
    _, height, width = record.shape
    crop_height, crop_width = image.shape[1:]
    mean = options.mean if options.mean is not None else np.reshape(options.mean_values or (0.0,), (-1, 1, 1))
    full_image = (record - np.broadcast_to(mean, record.shape)) * options.scale
    last_row, last_column = height - crop_height, width - crop_width
    rows = range(last_row + 1) if phase == "TRAIN" else [last_row // 2]
    columns = range(last_column + 1) if phase == "TRAIN" else [last_column // 2]
    for row in rows:
        for column in columns:
            window = full_image[:, row : row + crop_height, column : column + crop_width]
            for flipped in (False, True) if options.mirror else (False,):
                candidate = window[:, :, ::-1] if flipped else window
                if np.allclose(candidate, image, rtol=BOUNDS["cpu"].forward, atol=1e-4):
                    return row, column, flipped
    return None
