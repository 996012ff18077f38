"""InfogainLoss against loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caffe_import.errors import WeightsError
from caffe_import.proto import caffe_pb2
from tests.reference.layer_check import check_layer, define, refusal, spread_values
from tests.reference.slow_losses import slow_infogain_loss, slow_softmax

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("shape", "axis", "labels"), [((4, 3), 1, (4,)), ((2, 3, 2, 2), 1, (2, 2, 2)), ((2, 2, 3), 2, (2, 2))]
)
@pytest.mark.parametrize("options", ["", "ignore_label: 1", "ignore_label: 1 normalization: BATCH_SIZE"])
def test_infogain(shape: tuple[int, ...], axis: int, labels: tuple[int, ...], options: str) -> None:
    rng = np.random.default_rng(2)
    ignore = 1 if "ignore" in options else None
    mode = "BATCH_SIZE" if "BATCH" in options else "VALID"
    check_layer(
        f'top: "loss" type: "InfogainLoss" infogain_loss_param {{ axis: {axis} }} loss_param {{ {options} }}',
        lambda x, y, h: [slow_infogain_loss(x, y, h.reshape(3, 3), axis, ignore=ignore, mode=mode)],
        [spread_values(*shape), rng.integers(0, 3, labels), rng.uniform(0.1, 1, (1, 1, 3, 3))],
        no_gradient=(1, 2),
    )


def test_infogain_matrix_from_a_file(tmp_path: Path) -> None:
    matrix = np.random.default_rng(3).uniform(0.1, 1, (3, 3)).astype(np.float32)
    source = tmp_path / "h.binaryproto"
    source.write_bytes(
        caffe_pb2.BlobProto(num=1, channels=1, height=3, width=3, data=matrix.reshape(-1).tolist()).SerializeToString()
    )
    text = (
        f'top: "loss" top: "prob" type: "InfogainLoss" infogain_loss_param {{ source: "{source}" }} '
        "loss_weight: 1 loss_weight: 0"
    )
    x = spread_values(2, 3)
    run = check_layer(
        text,
        lambda x, y: [slow_infogain_loss(x, y, matrix.astype(np.float64)), slow_softmax(x, 1)],
        [x, [2, 0]],
        no_gradient=(1,),
    )
    assert run.net.layers[-1].loss_weights == (1.0, 0.0)
    assert refusal(text, (2, 4), (2,)).endswith(f"{source} holds 9 values; expected 4 x 4")
    with pytest.raises(WeightsError, match=r"missing\.binaryproto: cannot be read"):
        define(text.replace("h.binaryproto", "missing.binaryproto"), (2, 3), (2,))


def test_infogain_needs_a_matrix_of_the_right_size() -> None:
    text = 'top: "loss" type: "InfogainLoss"'
    assert "the matrix must come from one of them" in refusal(text, (2, 3), (2,))
    assert refusal(text, (2, 3), (2,), (2, 2)).endswith('bottom "x2" has 4 values; expected 3 x 3')
