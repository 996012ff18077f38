"""WindowData: R-CNN windows cut out of images. Source: BVLC Caffe, src/caffe/layers/window_data_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.data_tops import batch_of, require_batch_size, shapes_of_samples

_CROP_MODES = ("warp", "square")


@layer_type(
    "WindowData",
    bottoms=(0, 0),
    tops=(2, 2),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's input takes the place of data layers",
)
def define_window_data(request: LayerRequest) -> LayerDefinition:
    """Tops: windows (batch, C, crop, crop), labels (batch,)."""
    param = request.message.window_data_param
    batch_size = require_batch_size(request, param.batch_size, option="window_data_param.batch_size")
    crop_size = request.message.transform_param.crop_size
    if crop_size == 0:
        finding = "crop_size is 0: windows are warped to crop_size x crop_size pixels, it must be above 0"
        raise request.refuse(finding)
    if param.crop_mode not in _CROP_MODES:
        finding = f'window_data_param.crop_mode is "{param.crop_mode}"; allowed: {", ".join(_CROP_MODES)}'
        raise request.refuse(finding)
    image, *label_shapes = shapes_of_samples(request)
    samples = ((image[0], crop_size, crop_size), *label_shapes)
    notes: tuple[str, ...] = ()
    if request.message.transform_param.scale != 1:
        notes = ("transform_param.scale is ignored, as in Caffe; window_data_param.scale is used",)
    return LayerDefinition(top_shapes=batch_of(batch_size, samples), is_data=True, notes=notes)
