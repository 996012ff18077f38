"""Input: blobs fed from outside. Source: BVLC Caffe, src/caffe/layers/input_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import check_n_axes


@layer_type(
    "Input",
    bottoms=(0, 0),
    tops=(1, None),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's input takes the place of data layers",
)
def define_input(request: LayerRequest) -> LayerDefinition:
    """Tops: as written; one shape may serve all tops. Caffe also takes none and waits for a reshape; we cannot."""
    shapes = tuple(tuple(shape.dim) for shape in request.message.input_param.shape)
    n_tops = len(request.message.top)
    if len(shapes) not in (1, n_tops):
        finding = f"input_param has {len(shapes)} shapes for {n_tops} tops; allowed: one for all, or one for each"
        raise request.refuse(finding)
    for shape in shapes:
        check_n_axes(request, len(shape), "a top")
        if any(extent < 1 for extent in shape):
            finding = f"input_param.shape {list(shape)}: every dim must be at least 1"
            raise request.refuse(finding)
    return LayerDefinition(top_shapes=shapes * n_tops if len(shapes) == 1 else shapes, is_data=True)
