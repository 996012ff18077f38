"""Outputs and loss weights from a net's message, against Caffe's record of the built net."""

from __future__ import annotations

import json
from typing import Any

import pytest

from caffe_import.files.prototxt import read_net
from caffe_import.net.output_weights import output_weights
from caffe_import.net.phases import filter_layers
from tests.paths import FIXTURES

CAFFE = FIXTURES / "caffe"
BUILT: dict[str, dict[str, Any]] = json.loads((CAFFE / "nets" / "built_nets.json").read_text())


@pytest.mark.parametrize("case", sorted(BUILT))
def test_outputs_and_their_weights_are_those_of_caffe(case: str) -> None:
    recorded = BUILT[case]
    net = filter_layers(
        read_net(CAFFE / recorded["prototxt"]),
        phase=recorded["phase"],
        level=recorded["level"],
        stages=recorded["stages"],
    )
    weights = output_weights(net)
    assert list(weights) == recorded["outputs"]
    assert weights == {blob: recorded["loss_weights"].get(blob, 0.0) for blob in recorded["outputs"]}
