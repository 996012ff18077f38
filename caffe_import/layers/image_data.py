"""ImageData: images named by a list file. Source: BVLC Caffe, src/caffe/layers/image_data_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.data_tops import batch_of, cropped, require_batch_size, shapes_of_samples


@layer_type(
    "ImageData",
    bottoms=(0, 0),
    tops=(2, 2),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's input takes the place of data layers",
)
def define_image_data(request: LayerRequest) -> LayerDefinition:
    """Tops: images (batch, C, H, W) after resize and crop, labels (batch,)."""
    param = request.message.image_data_param
    if (param.new_height == 0) != (param.new_width == 0):
        finding = (
            f"new_height={param.new_height} and new_width={param.new_width}: "
            "allowed: both 0 (no resize) or both above 0"
        )
        raise request.refuse(finding)
    batch_size = require_batch_size(request, param.batch_size, option="image_data_param.batch_size")
    samples = cropped(request, shapes_of_samples(request))
    notes: tuple[str, ...] = ()
    if param.new_height == 0:
        notes = ("no new_height/new_width: images of several sizes need crop_size or batch_size: 1",)
    return LayerDefinition(top_shapes=batch_of(batch_size, samples), is_data=True, notes=notes)
