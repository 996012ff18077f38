"""A net for inputs of another shape: Caffe's ``Net::Reshape``. Parameters, losses and gradients stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from caffe_import.errors import NetError
from caffe_import.net.layer_registry import LayerDefinition, Shape, find_layer_type
from caffe_import.net.net_spec import LayerSpec, NetSpec, check_definition, layer_request

MOST_SHAPES: Final = 64
"""Sizes whose graphs a compiled net keeps."""


def reshaped(net: NetSpec, inputs: Mapping[str, Shape]) -> NetSpec:
    """Return the net for other shapes of its inputs.

    Args:
        net: The net.
        inputs: Input blob -> full shape; other inputs keep their shape.

    Raises:
        NetError: A layer cannot have bottoms of these shapes, or its parameters depend on the shapes.
    """
    shapes: dict[str, Shape] = {}
    layers = []
    for layer in net.layers:
        bottoms = tuple(shapes[blob] for blob in layer.bottoms)
        try:
            definition = _reshaped_definition(layer, bottoms, inputs)
        except NetError as error:
            described = ", ".join(f'"{name}" {shape}' for name, shape in inputs.items())
            msg = f"{error}; the inputs of this pass: {described}"
            raise NetError(msg, layer=layer.name) from error
        shapes.update(zip(layer.tops, definition.top_shapes, strict=True))
        layers.append(replace(layer, bottom_shapes=bottoms, definition=definition))
    return replace(
        net,
        layers=tuple(layers),
        inputs={name: shapes[name] for name in net.inputs},
        blob_shapes=shapes,
    )


def _reshaped_definition(layer: LayerSpec, bottoms: tuple[Shape, ...], inputs: Mapping[str, Shape]) -> LayerDefinition:
    old = layer.definition
    if old.is_data:
        tops = zip(layer.tops, old.top_shapes, strict=True)
        return replace(old, top_shapes=tuple(inputs.get(top, shape) for top, shape in tops))
    if bottoms == layer.bottom_shapes:
        return old
    kind = find_layer_type(layer.type, layer=layer.name)
    request = layer_request(layer.message, kind, bottoms, None)
    new = kind.define(request)
    check_definition(request, new, kind)
    old_shapes, new_shapes = ([blob.shape for blob in definition.blobs] for definition in (old, new))
    if new_shapes != old_shapes:
        finding = (
            f"its parameters have shapes {_text(old_shapes)}, bottoms of shape {_text(bottoms)} need"
            f" {_text(new_shapes)}; allowed: samples of one size, or layers whose parameters do not depend on the size"
            " (Convolution; a Pooling with global_pooling before an InnerProduct)"
        )
        raise request.refuse(finding)
    if new.state_shapes != old.state_shapes:
        finding = (
            f"keeps values from pass to pass, whose shapes change with bottoms of shape {_text(bottoms)}; allowed:"
            " samples of one size"
        )
        raise request.refuse(finding)
    return new


def _text(shapes: Iterable[Shape]) -> str:
    return " and ".join(map(str, shapes))
