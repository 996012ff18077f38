"""Recorded forward passes of Caffe, once more with fixed weights, as stage evaluate runs a net."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.parity import net_cases
from caffe_import.parity.case import Case, run_case
from caffe_import.tf_graph.gradients import Passes, run_passes
from caffe_import.tf_graph.predict import compile_fixed_forward
from tests.parity.test_caffe_cases import _FOLDER, _unsupported
from tests.parity.test_caffe_cases import load_cases as selected_cases
from tests.parity.test_layer_cases import FOLDER, RECORDS

pytestmark = pytest.mark.tf

WITH_WEIGHTS = (
    "BatchNorm", "Bias", "Convolution", "Deconvolution", "Embed", "InnerProduct", "LSTM", "PReLU", "RNN", "Scale",
    "Split"
)  # fmt: skip
"""Split too: it decides whether a reader may scale a convolution's weights. Other types have the same graph."""


def with_fixed_blobs(net: NetSpec, params: Vector, feeds: Mapping[str, Any], **options: Any) -> Passes:
    """Return the passes of ``run_passes`` with blobs, loss and layer state of fixed weights."""
    passes = run_passes(net, params, feeds, **options)
    forward = compile_fixed_forward(net, params, n_threads=1, outputs=list(net.blob_shapes))
    result = forward.run(feeds, layer_state=options["layer_state"])
    return replace(passes, blobs=result.blobs, loss=result.loss, layer_state=result.layer_state)


def faults_of(cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(net_cases, "run_passes", with_fixed_blobs)
    outcomes = [run_case(case) for case in cases]
    assert outcomes
    return {
        outcome.name: (outcome.status, outcome.faults)
        for outcome in outcomes
        if outcome.status != "passed" and outcome.name not in _unsupported()
    }


@pytest.mark.parametrize("layer_type", WITH_WEIGHTS)
def test_layer_type_agrees_with_caffe(layer_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not faults_of([Case(FOLDER, record) for record in RECORDS[layer_type]], monkeypatch)


def test_selected_nets_agree_with_caffe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not faults_of([case for case in selected_cases(_FOLDER) if case.kind == "net"], monkeypatch)
