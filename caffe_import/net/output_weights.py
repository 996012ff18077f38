"""The outputs of a net with loss weights, from the message alone: shapes and data are not needed."""

from __future__ import annotations

from caffe_import.proto import caffe_pb2


def output_weights(net: caffe_pb2.NetParameter) -> dict[str, float]:
    """Return each output of a net with the weight in the loss, 0 for an output without a loss, in Caffe's order.

    Source: BVLC Caffe, src/caffe/net.cpp, ``Net::Init`` (``available_blobs``, a set sorted by name).

    Args:
        net: Layers of one phase (``filter_layers``).
    """
    unread: dict[str, float] = {}
    for layer in net.layer:
        for blob in layer.bottom:
            unread.pop(blob, None)
        is_loss = layer.type.endswith("Loss")  # as the names of Caffe's LossLayers, and of no other layer
        weights = list(layer.loss_weight) or [1.0 if is_loss else 0.0]
        unread |= dict.fromkeys(layer.top, 0.0) | dict(zip(layer.top, weights, strict=False))
    return dict(sorted(unread.items()))
