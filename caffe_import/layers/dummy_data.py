"""DummyData: tops filled by fillers. Source: BVLC Caffe, src/caffe/layers/dummy_data_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.fillers import filler_fault
from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, Shape, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import check_n_axes
from caffe_import.proto import caffe_pb2

_LEGACY = ("num", "channels", "height", "width")


@dataclass(frozen=True)
class DummyDataOptions:
    """``fillers``: a filler for each top; random fillers draw anew in every forward pass."""

    fillers: tuple[caffe_pb2.FillerParameter, ...]


@layer_type(
    "DummyData",
    bottoms=(0, 0),
    tops=(1, None),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's input takes the place of data layers",
)
def define_dummy_data(request: LayerRequest) -> LayerDefinition:
    """Tops: as written by ``shape``, or by the deprecated num, channels, height, width. The layer is not fed."""
    param = request.message.dummy_data_param
    n_tops = len(request.message.top)
    fillers = tuple(param.data_filler) or (caffe_pb2.FillerParameter(),)
    if len(fillers) not in (1, n_tops):
        finding = f"has {len(fillers)} data_filler for {n_tops} tops; allowed: none, one for all, or one for each"
        raise request.refuse(finding)
    if len(fillers) == 1:
        fillers *= n_tops
    shapes = _shapes(request, n_tops)
    for top, filler, shape in zip(request.message.top, fillers, shapes, strict=True):
        check_n_axes(request, len(shape), f'top "{top}"')
        if fault := filler_fault(filler, shape):
            finding = f'top "{top}": {fault}'
            raise request.refuse(finding)
    return LayerDefinition(top_shapes=shapes, options=DummyDataOptions(fillers))


def _shapes(request: LayerRequest, n_tops: int) -> tuple[Shape, ...]:
    param = request.message.dummy_data_param
    legacy = [tuple(getattr(param, name)) for name in _LEGACY]
    if any(legacy) and param.shape:
        finding = "has shape and one of num, channels, height, width; allowed: one of both forms"
        raise request.refuse(finding)
    if any(legacy):
        if any(len(values) not in (1, n_tops) for values in legacy):
            finding = f"num, channels, height and width must each be given once, or once for each of {n_tops} tops"
            raise request.refuse(finding)
        each = [values * n_tops if len(values) == 1 else values for values in legacy]
        return tuple(zip(*each, strict=True))
    shapes = tuple(tuple(shape.dim) for shape in param.shape)
    if len(shapes) not in (1, n_tops):
        finding = f"has {len(shapes)} shapes for {n_tops} tops; allowed: one for all, or one for each"
        raise request.refuse(finding)
    return shapes * n_tops if len(shapes) == 1 else shapes
