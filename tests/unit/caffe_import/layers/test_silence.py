"""Silence against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import run_layer, spread_values

pytestmark = pytest.mark.tf


def test_silence_takes_everything_and_sends_nothing_back() -> None:
    run = run_layer('type: "Silence"', [spread_values(2, 3), spread_values(4)])
    assert run.tops == ()
    assert run.passes.blob_gradients["x0"] is None
