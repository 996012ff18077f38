"""Recorded forward passes of Caffe, once more with fixed and with prepared weights.

Stage evaluate runs a net with fixed weights, a training tests its center with prepared weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.parity import net_cases
from caffe_import.parity.case import Case, run_case
from caffe_import.tf_graph.gradients import Passes, run_passes
from caffe_import.tf_graph.predict import FixedPass, compile_fixed_forward, compile_prepared_forward
from tests.parity.test_caffe_cases import _FOLDER, _unsupported
from tests.parity.test_caffe_cases import load_cases as selected_cases
from tests.parity.test_layer_cases import FOLDER, RECORDS

pytestmark = pytest.mark.tf

ForwardPass = Callable[[NetSpec, Vector, Mapping[str, Any], Mapping[str, Any]], FixedPass]
WITH_WEIGHTS = (
    "BatchNorm", "Bias", "Convolution", "Deconvolution", "Embed", "InnerProduct", "LSTM", "PReLU", "RNN", "Scale",
    "Split"
)  # fmt: skip
"""Split too: it decides whether a reader may scale a convolution's weights. Other types have the same graph."""


def fixed_pass(net: NetSpec, params: Vector, feeds: Mapping[str, Any], layer_state: Mapping[str, Any]) -> FixedPass:
    forward = compile_fixed_forward(net, params, n_threads=1, outputs=list(net.blob_shapes))
    return forward.run(feeds, layer_state=layer_state)


def prepared_pass(net: NetSpec, params: Vector, feeds: Mapping[str, Any], layer_state: Mapping[str, Any]) -> FixedPass:
    forward = compile_prepared_forward(net, n_threads=1, outputs=list(net.blob_shapes))
    return forward.run(forward.prepared(params), feeds, layer_state=layer_state)


def with_blobs_of(forward_pass: ForwardPass) -> Callable[..., Passes]:
    """Return a replacement of ``run_passes``: blobs, loss and layer state of another forward pass.

    Only BatchNorm's forward pass moves parameters; ``run_passes`` gives the moved ones. No gradient is computed:
    fixed weights have none.
    """

    def passes_of(net: NetSpec, params: Vector, feeds: Mapping[str, Any], **options: Any) -> Passes:
        result = forward_pass(net, params, feeds, options["layer_state"])
        moves = any(layer.type == "BatchNorm" for layer in net.layers)
        params_after = run_passes(net, params, feeds, **options).params if moves else params
        return Passes(result.blobs, result.loss, params_after, result.layer_state, {}, np.zeros_like(params))

    return passes_of


def faults_of(cases: list[Case], forward_pass: ForwardPass, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(net_cases, "run_passes", with_blobs_of(forward_pass))
    monkeypatch.setattr(net_cases, "_compare_backward", lambda *_: None)
    outcomes = [run_case(case) for case in cases]
    assert outcomes
    return {
        outcome.name: (outcome.status, outcome.faults)
        for outcome in outcomes
        if outcome.status != "passed" and outcome.name not in _unsupported()
    }


@pytest.mark.parametrize("layer_type", WITH_WEIGHTS)
@pytest.mark.parametrize("forward_pass", [fixed_pass, prepared_pass])
def test_layer_type_agrees_with_caffe(
    layer_type: str, forward_pass: ForwardPass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record by one of the two kinds of weights; `make test-long` has each by both."""
    records = RECORDS[layer_type]
    chosen = records[::2] if forward_pass is fixed_pass else records[1::2] or records
    assert not faults_of([Case(FOLDER, record) for record in chosen], forward_pass, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("layer_type", WITH_WEIGHTS)
@pytest.mark.parametrize("forward_pass", [fixed_pass, prepared_pass])
def test_every_record_of_a_layer_type_agrees_with_caffe(
    layer_type: str, forward_pass: ForwardPass, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not faults_of([Case(FOLDER, record) for record in RECORDS[layer_type]], forward_pass, monkeypatch)


@pytest.mark.parametrize(
    ("forward_pass", "chosen"),
    [
        (fixed_pass, slice(0, None, 2)),
        (prepared_pass, slice(1, None, 2)),
        pytest.param(fixed_pass, slice(1, None, 2), marks=pytest.mark.long),
        pytest.param(prepared_pass, slice(0, None, 2), marks=pytest.mark.long),
    ],
)
def test_nets_agree_with_caffe(forward_pass: ForwardPass, chosen: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    nets = [case for case in selected_cases(_FOLDER) if case.kind == "net"]
    assert not faults_of(nets[chosen], forward_pass, monkeypatch)
