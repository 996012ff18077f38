"""Tile: repeat a blob along one axis."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis


@dataclass(frozen=True)
class TileOptions:
    """Resolved options of Tile.

    Attributes:
        axis: Axis along which the whole blob is repeated.
        tiles: Number of copies.
    """

    axis: int
    tiles: int


@layer_type(
    "Tile",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(
        arithmetic="float32", axis_order="its bottoms'", gradient_keeps="nothing", reads_overwritten=False
    ),
)
def define_tile(request: LayerRequest) -> LayerDefinition:
    """Multiply one extent. Source: tile_layer.cpp, TileLayer::Reshape."""
    param = request.message.tile_param
    if param.tiles < 1:
        finding = f"tiles={param.tiles}: must be 1 or more"
        raise request.refuse(finding)
    axis = canonical_axis(request, param.axis, len(request.bottom_shapes[0]), option="tile_param.axis")
    shape = list(request.bottom_shapes[0])
    shape[axis] *= param.tiles
    return LayerDefinition(top_shapes=(tuple(shape),), options=TileOptions(axis, param.tiles))
