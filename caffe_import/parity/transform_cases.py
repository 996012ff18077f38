"""Cases of kind ``transform``: the first batches of one data layer."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data import read_wrapped
from caffe_import.data.memory_source import MemorySource
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import LayerSpec, NetSpec, build_net_spec
from caffe_import.parity.case import Case, load_archive
from caffe_import.parity.feeds import LayerBatches, sample_shapes
from caffe_import.parity.findings import Findings, members_under
from caffe_import.parity.random_batches import check_random_batches
from caffe_import.tf_graph.builder import fed_blobs
from caffe_import.tf_graph.predict import compile_forward

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
        check_random_batches(layer, net, archive, n_batches, findings)
        return
    bound = _JPEG_BOUND if "JPEG" in str(case.record.get("note", "")) else findings.bounds.forward
    with closing(_batches(net, layer, archive, findings.setting.device)) as batches:
        for k, our_batch in zip(range(1, n_batches + 1), batches, strict=False):
            for top, caffe_blob in members_under(archive, f"batch{k}").items():
                findings.compare(f"batch{k}/{top}", our_batch[top], caffe_blob, bound)


def _batches(net: NetSpec, layer: LayerSpec, archive: Mapping[str, Array], device: str) -> Generator[dict[str, Array]]:
    if not fed_blobs(net):
        forward = compile_forward(net, n_threads=1, outputs=layer.tops, device=device)
        while True:
            yield forward(np.zeros(0, np.float32), {})
    fed = members_under(archive, "fed")
    if fed:
        source, batch_size = MemorySource([fed[top] for top in layer.tops]), layer.definition.top_shapes[0][0]
        position = 0
        while True:
            yield dict(zip(layer.tops, read_wrapped(source, position, batch_size), strict=True))
            position += batch_size
    with LayerBatches(layer, net.phase) as batches:
        while True:
            yield dict(zip(layer.tops, batches.transformed(batches.read()), strict=False))
