"""Python: a class of the user's, registered by module and name; the forward pass is TensorFlow operations.

Source: BVLC Caffe, include/caffe/layers/python_layer.hpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, Shape, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.python_layers import PythonBlob, PythonLayer, described_exception, find_python_layer
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class PythonOptions:
    """``layer`` is the user's object, set up; its ``forward`` is called each time a graph is traced."""

    layer: PythonLayer


@layer_type(
    "Python",
    bottoms=(0, None),
    tops=(0, None),
    in_place=True,
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="its class is written in TensorFlow operations",
)
def define_python(request: LayerRequest) -> LayerDefinition:
    """Tops: what the class' ``reshape`` returns. Blobs: the result of ``blobs``, if the class has the method.

    ``share_in_parallel`` changes no value and is ignored.

    Raises:
        NetError: The class is not found, refuses its options by a ValueError, fails, or returns no list of shapes.
    """
    layer_class = find_python_layer(request)
    try:
        layer = layer_class()
        layer.setup(request.message.python_param.param_str, request.bottom_shapes)
        shapes = layer.reshape(request.bottom_shapes)
        learned = layer.blobs(request.bottom_shapes) if hasattr(layer, "blobs") else ()
    except ValueError as error:
        raise request.refuse(str(error)) from error
    except Exception as error:  # the class is the user's code
        raise request.refuse(described_exception(error)) from error
    return LayerDefinition(
        top_shapes=_checked(request, shapes), blobs=_blobs(request, learned), options=PythonOptions(layer)
    )


def _blobs(request: LayerRequest, learned: Sequence[Any]) -> tuple[BlobSpec, ...]:
    specs = []
    for blob in learned:
        if not isinstance(blob, PythonBlob):
            finding = f"blobs returned {blob!r}; expected PythonBlob of caffe_import.net.python_layers, one per blob"
            raise request.refuse(finding)
        try:
            filler = text_format.Parse(blob.filler, caffe_pb2.FillerParameter())
        except text_format.ParseError as error:
            finding = f"the filler {blob.filler!r} of a blob is no FillerParameter: {error}"
            raise request.refuse(finding) from error
        specs.append(BlobSpec(tuple(int(extent) for extent in blob.shape), filler))
    return tuple(specs)


def _checked(request: LayerRequest, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    try:
        return tuple(tuple(int(extent) for extent in shape) for shape in shapes)
    except TypeError as error:
        finding = f"reshape returned {shapes!r}; expected one shape per top, such as [(2, 3)]"
        raise request.refuse(finding) from error
