"""The published nets of ``tests/fixtures/nets``, as the tests build them."""

from __future__ import annotations

from caffe_import.files.prototxt import read_net
from caffe_import.net.layer_registry import Phase
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES

NETS = FIXTURES / "nets"
SLIM_OUTPUTS = 64
"""Outputs that are left of a fully connected layer of 4096: VGG16 then has 16 million parameters, not 138."""


def published_net(name: str, phase: Phase = "TRAIN", *, batch_size: int | None = None, slim: bool = False) -> NetSpec:
    """Build a published net.

    Args:
        name: Stem of its file.
        phase: TRAIN or TEST.
        batch_size: Samples (sequences) in a batch; None: as published.
        slim: Whether its layers of 4096 outputs have ``SLIM_OUTPUTS``, so that gigabytes become megabytes.
    """
    shape = (2, 28, 28) if name == "siamese" else (3, 256, 256)

    def sample_shapes(_: caffe_pb2.LayerParameter) -> tuple[tuple[int, ...], ...]:
        return (shape, ())

    net = read_net(NETS / f"{name}.prototxt")
    for layer in net.layer:
        if slim and layer.inner_product_param.num_output == 4096:
            layer.inner_product_param.num_output = SLIM_OUTPUTS
        if batch_size is None:
            continue
        if layer.type == "Data":
            layer.data_param.batch_size = batch_size
        for blob in layer.input_param.shape:
            blob.dim[0 if layer.name == "image_features" else 1] = batch_size
    return build_net_spec(net, phase=phase, sample_shapes=sample_shapes)
