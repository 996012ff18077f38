"""How TensorFlow computes a Python layer: by the operations of its class."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from caffe_import.errors import NetError
from caffe_import.layers.python import PythonOptions
from caffe_import.net.layer_registry import Shape
from caffe_import.net.python_layers import described_exception
from caffe_import.net.shapes.axes import shape_text
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("Python")
def emit_python(request: EmitRequest) -> Emission:
    """Call ``forward`` while the graph is traced.

    Raises:
        NetError: It fails, or returns other tops than ``reshape`` announced.
    """
    options = request.layer.definition.options
    assert isinstance(options, PythonOptions)
    learned = {"blobs": list(request.params)} if hasattr(options.layer, "blobs") else {}
    try:
        answer = options.layer.forward(
            [bottom.caffe for bottom in request.bottoms], is_training=request.is_training, **learned
        )
        tops = [tf.cast(top, tf.float32) for top in answer]
    except Exception as error:  # the class is the user's code
        msg = f'layer "{request.layer.name}" (Python): forward fails: {described_exception(error)}'
        raise NetError(msg, layer=request.layer.name) from error
    expected = request.layer.definition.top_shapes
    fits = [top.shape.is_compatible_with(_partial(shape)) for top, shape in zip(tops, expected, strict=False)]
    if len(tops) != len(expected) or not all(fits):
        top_shapes = ", ".join(shape_text(tuple(top.shape)) for top in tops) or "nothing"
        msg = (
            f'layer "{request.layer.name}" (Python): forward returned {top_shapes}; '
            f"reshape announced {', '.join(map(shape_text, expected)) or 'nothing'}"
        )
        raise NetError(msg, layer=request.layer.name)
    return Emission(tuple(Blob.from_caffe(_with_shape(top, shape)) for top, shape in zip(tops, expected, strict=True)))


def _partial(shape: Shape) -> Sequence[int | None]:
    """Return the shape with None for a batch axis of any size."""
    return [extent if extent >= 0 else None for extent in shape]


def _with_shape(top: tf.Tensor, shape: Shape) -> tf.Tensor:
    # Operations of the user's may have lost the static shape that later layers read.
    return top if top.shape.is_fully_defined() else tf.ensure_shape(top, _partial(shape))
