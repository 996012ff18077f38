"""Silence in TensorFlow: nothing to compute."""

from __future__ import annotations

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Silence")
def emit_silence(request: EmitRequest) -> Emission:
    """Return no top."""
    return Emission(())
