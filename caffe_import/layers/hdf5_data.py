"""HDF5Data: one HDF5 dataset per top, named like the top. Source: BVLC Caffe, src/caffe/layers/hdf5_data_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.data_tops import batch_of, require_batch_size, shapes_of_samples


@layer_type(
    "HDF5Data",
    bottoms=(0, 0),
    tops=(1, None),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's input takes the place of data layers",
)
def define_hdf5_data(request: LayerRequest) -> LayerDefinition:
    """Tops: (batch, *row shape of the dataset), any rank."""
    if request.message.HasField("transform_param"):
        finding = "has a transform_param; HDF5Data returns the numbers as stored: remove it"
        raise request.refuse(finding)
    param = request.message.hdf5_data_param
    batch_size = require_batch_size(request, param.batch_size, option="hdf5_data_param.batch_size")
    return LayerDefinition(top_shapes=batch_of(batch_size, shapes_of_samples(request)), is_data=True)
