"""MemoryData: arrays fed by the caller. Source: BVLC Caffe, src/caffe/layers/memory_data_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.data_tops import require_batch_size


@layer_type(
    "MemoryData",
    bottoms=(0, 0),
    tops=(2, 2),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's input takes the place of data layers",
)
def define_memory_data(request: LayerRequest) -> LayerDefinition:
    """Tops: data (batch, C, H, W), labels (batch,). Fed arrays are not transformed, as in Caffe."""
    param = request.message.memory_data_param
    batch_size = require_batch_size(request, param.batch_size, option="memory_data_param.batch_size")
    sample = (param.channels, param.height, param.width)
    if min(sample) < 1:
        finding = (
            f"memory_data_param: channels={sample[0]}, height={sample[1]}, width={sample[2]}: all three must be above 0"
        )
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=((batch_size, *sample), (batch_size,)), is_data=True)
