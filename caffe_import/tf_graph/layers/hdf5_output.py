"""HDF5Output in TensorFlow: nothing to compute; the caller of the net writes the bottoms."""

from __future__ import annotations

from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("HDF5Output")
def emit_hdf5_output(_: EmitRequest) -> Emission:
    """No tops."""
    return Emission(())
