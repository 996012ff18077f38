"""Data: batches of Datum records from LMDB or LevelDB. Source: BVLC Caffe, src/caffe/layers/data_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.data_tops import batch_of, cropped, require_batch_size, shapes_of_samples


@layer_type(
    "Data",
    bottoms=(0, 0),
    tops=(1, 2),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's input takes the place of data layers",
)
def define_data(request: LayerRequest) -> LayerDefinition:
    """Tops: images (batch, C, H, W) after the crop, labels (batch,)."""
    batch_size = require_batch_size(request, request.message.data_param.batch_size, option="data_param.batch_size")
    samples = cropped(request, shapes_of_samples(request))
    return LayerDefinition(top_shapes=batch_of(batch_size, samples), is_data=True)
