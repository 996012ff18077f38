"""LSTMUnit: one step of an LSTM's cell, gates given. Source: BVLC Caffe, src/caffe/layers/lstm_unit_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import shape_text


@layer_type(
    "LSTMUnit",
    bottoms=(3, 3),
    tops=(2, 2),
    label_bottoms=(2,),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="time is its first axis, and a second bottom marks where sequences begin",
)
def define_lstm_unit(request: LayerRequest) -> LayerDefinition:
    """Bottoms: c (1, N, H), gates (1, N, 4H) before their nonlinearities, cont (1, N). Tops: c, h (1, N, H)."""
    cell, gates, cont = request.bottom_shapes
    if len(cell) != 3 or cell[0] != 1 or gates != (1, cell[1], 4 * cell[2]) or cont != cell[:2]:
        finding = (
            f"bottoms have shapes {shape_text(cell)}, {shape_text(gates)}, {shape_text(cont)}; "
            "expected (1, N, H), (1, N, 4H), (1, N)"
        )
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=(cell, cell))
