"""HDF5Output: writes its bottoms to a file. Source: BVLC Caffe, src/caffe/layers/hdf5_output_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@dataclass(frozen=True)
class HDF5OutputOptions:
    """``file_name`` is the file that receives ``data`` (bottom 0) and ``label`` (bottom 1)."""

    file_name: str


@layer_type(
    "HDF5Output",
    bottoms=(2, 2),
    tops=(0, 0),
    differentiable_bottoms=False,
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="nothing", reads_overwritten=False),
    no_keras_form="it writes a file",
)
def define_hdf5_output(request: LayerRequest) -> LayerDefinition:
    """No tops. A graph has no side effects: the caller reads the two bottoms and writes the file."""
    file_name = request.message.hdf5_output_param.file_name
    if not file_name:
        finding = "hdf5_output_param.file_name is missing"
        raise request.refuse(finding)
    first, second = request.bottom_shapes
    if first[:1] != second[:1]:
        finding = f"bottoms hold {first[:1]} and {second[:1]} samples; expected equal numbers"
        raise request.refuse(finding)
    if max(len(first), len(second)) > 4:
        finding = f"bottoms have shapes {first} and {second}; allowed: at most 4 axes"
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=(), options=HDF5OutputOptions(file_name))
