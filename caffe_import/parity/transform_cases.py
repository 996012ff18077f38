"""Cases of kind ``transform``: the first batches of one data layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data_sources import read_wrapped
from caffe_import.data_sources.memory_source import MemorySource
from caffe_import.net_spec import LayerSpec, NetSpec, build_net_spec
from caffe_import.parity.case import Case, load_archive
from caffe_import.parity.feeds import LayerBatches, sample_shapes
from caffe_import.parity.findings import FORWARD_BOUND, Findings, members_under
from caffe_import.prototxt import read_net
from caffe_import.tf_graph.builder import fed_blobs
from caffe_import.tf_graph.predict import compile_forward
from caffe_import.transform import TransformOptions

Array = npt.NDArray[Any]

# Decoders of JPEG may differ by two of 255 levels; errors count relative to at least a tenth of the largest value.
_JPEG_BOUND = 2 / 25.5


def run(case: Case, findings: Findings) -> None:
    """Compare every recorded batch, in order."""
    archive = load_archive(case.file(".npz"))
    net = build_net_spec(read_net(case.file(".prototxt")), phase=case.record["phase"], sample_shapes=sample_shapes)
    layer = net.layers[0]
    shapes = {top: array.shape for top, array in members_under(archive, "batch1").items()}
    if layer.type == "MemoryData":
        # Declared as (N,); only its forward pass makes it (N, 1, 1, 1).
        shapes[layer.tops[1]] = shapes[layer.tops[1]][:1]
    declared = dict(zip(layer.tops, layer.definition.top_shapes, strict=True))
    findings.agree("shapes of the first batch", declared, shapes)
    n_batches = sum(1 for name in archive if name.startswith("batch") and name.endswith(f"/{layer.tops[0]}"))
    if case.is_random:
        _check_random_batches(layer, net, archive, n_batches, findings)
        return
    bound = _JPEG_BOUND if "JPEG" in str(case.record.get("note", "")) else FORWARD_BOUND
    for k, ours in zip(range(1, n_batches + 1), _batches(net, layer, archive), strict=False):
        for top, theirs in members_under(archive, f"batch{k}").items():
            findings.compare(f"batch{k}/{top}", ours[top], theirs, bound)


def _batches(net: NetSpec, layer: LayerSpec, archive: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    if not fed_blobs(net):
        forward = compile_forward(net, n_threads=1, outputs=layer.tops)
        while True:
            yield forward(np.zeros(0, np.float32), {})
    fed = members_under(archive, "fed")
    if fed:
        source, batch_size = MemorySource([fed[top] for top in layer.tops]), layer.definition.top_shapes[0][0]
        position = 0
        while True:
            yield dict(zip(layer.tops, read_wrapped(source, position, batch_size), strict=True))
            position += batch_size
    batches = LayerBatches(layer, net.phase)
    while True:
        yield dict(zip(layer.tops, batches.transformed(batches.read()), strict=False))


def _check_random_batches(
    layer: LayerSpec, net: NetSpec, archive: Mapping[str, Array], n_batches: int, findings: Findings
) -> None:
    """Check that each item, Caffe's and ours, is one of the crops and flips of the record whose turn it is."""
    batches = LayerBatches(layer, net.phase)
    image_top, *other_tops = layer.tops
    seen: set[tuple[int, int, bool]] = set()
    for k in range(1, n_batches + 1):
        stored = batches.read()
        ours = batches.transformed(stored)
        theirs = archive[f"batch{k}/{image_top}"]
        for whose, images in (("our", ours[0]), ("Caffe's", theirs)):
            for item, (record, image) in enumerate(zip(stored[0], images, strict=True)):
                found = _origin(record, image, batches.options, net.phase)
                findings.hold(
                    claim=found is not None,
                    otherwise=f"batch{k}: {whose} item {item} is no crop or flip of its record",
                )
                if found is not None and whose == "our":
                    seen.add(found)
        for top, column in zip(other_tops, ours[1:], strict=True):
            findings.compare(f"batch{k}/{top}", column, archive[f"batch{k}/{top}"], FORWARD_BOUND)
    findings.hold(claim=len(seen) > 1, otherwise="our items all have the same place and flip")


def _origin(record: Array, image: Array, options: TransformOptions, phase: str) -> tuple[int, int, bool] | None:
    """Return the (row, column, flipped) of the crop of ``record`` that gives ``image``; None if no crop does."""
    _, height, width = record.shape
    crop_height, crop_width = image.shape[1:]
    mean = options.mean if options.mean is not None else np.reshape(options.mean_values or (0.0,), (-1, 1, 1))
    whole = (record - np.broadcast_to(mean, record.shape)) * options.scale
    last_row, last_column = height - crop_height, width - crop_width
    rows = range(last_row + 1) if phase == "TRAIN" else [last_row // 2]
    columns = range(last_column + 1) if phase == "TRAIN" else [last_column // 2]
    for row in rows:
        for column in columns:
            window = whole[:, row : row + crop_height, column : column + crop_width]
            for flipped in (False, True) if options.mirror else (False,):
                if np.allclose(window[:, :, ::-1] if flipped else window, image, rtol=FORWARD_BOUND, atol=1e-4):
                    return row, column, flipped
    return None
