"""A deploy net as a Keras model with the inputs and outputs of the SavedModel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from caffe_import.data.transform import TransformOptions
from caffe_import.net.layer_registry import find_layer_type
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from deepspark_ops.export.deploy_net import free_name
from deepspark_ops.export.formats.exported_model import CannotHave
from deepspark_ops.export.formats.keras_layers.registry import Array, FormRequest, registered_forms
from deepspark_ops.export.formats.keras_layers.value import Value
from deepspark_ops.export.served_input import ServedInput
from deepspark_ops.export.served_output import CLASSES, ServedOutput


def keras_model(net: NetSpec, params: Vector, inputs: Sequence[ServedInput], outputs: Sequence[ServedOutput]) -> Any:
    """Return the functional model; its inputs and outputs have the SavedModel's names.

    ``net`` has -1 for the batch axis of every shape (``batch_size.net_of_any_batch``).

    Raises:
        CannotHave: A layer without a Keras form; the message names it.
    """
    _pass_over_names(layer.name for layer in net.layers)
    arguments = {served.name: _argument(served) for served in inputs}
    prepared_inputs = {served.blob: _prepared(arguments[served.name], served) for served in inputs}
    values = keras_values(net, params, prepared_inputs)
    answers = {output.name: keras.layers.Reshape(output.shape)(values[output.blob].caffe) for output in outputs}
    for output in outputs:
        if output.has_classes:
            answers[CLASSES] = ops.cast(ops.argmax(answers[output.name], axis=1), "int64")
    return keras.Model(arguments, answers, name=_keras_name(net.name or "model", set()))


def _argument(served: ServedInput) -> Any:
    shape = tuple(None if extent < 0 else extent for extent in served.shape)
    return keras.Input(shape, dtype=served.dtype, name=served.name)


def keras_values(net: NetSpec, params: Vector, input_values: Mapping[str, Value]) -> dict[str, Value]:
    """Return name -> last value of every blob; in-place layers replace the value."""
    views = list(net.params.views(params).values())
    forms = registered_forms()
    values = dict(input_values)
    reserved_names: set[str] = set()
    for layer in net.layers:
        if layer.definition.is_data and all(top in input_values for top in layer.tops):
            continue
        form = forms.get(layer.type)
        if form is None:
            reason = find_layer_type(layer.type, layer=layer.name).no_keras_form
            msg = f'layer "{layer.name}": type {layer.type} has no Keras form: {reason}'
            raise CannotHave(msg)
        request = FormRequest(
            layer=layer,
            name=_keras_name(layer.name, reserved_names),
            bottoms=[values[bottom] for bottom in layer.bottoms],
            params=[views[net.params.uses[layer.name, at]] for at in range(len(layer.definition.blobs))],
        )
        values.update(zip(layer.tops, form(request), strict=True))
    return values


_NUMBERED_NAME = re.compile(r"([a-z]\w*?)(?:_(\d{1,4}))?")
"""A name of Keras for an operation without a name: ``reshape``, ``reshape_1``, and so on."""


def _pass_over_names(layer_names: Iterable[str]) -> None:
    """Use up Keras' automatic names that the net's layers have: a model may have a name once only."""
    for name in layer_names:
        if match := _NUMBERED_NAME.fullmatch(name):
            prefix, number = match[1], int(match[2] or 0)
            operation = type(prefix, (keras.Operation,), {})
            while int(operation().name.removeprefix(prefix)[1:] or 0) < number:
                pass


def _keras_name(name: str, reserved_names: set[str]) -> str:
    """Return a name without slashes, as Keras requires, and reserve the name; a number is added to a reserved name."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name).strip("._-") or "layer"
    free = free_name(plain, reserved_names)
    reserved_names.add(free)
    return free


def _prepared(argument: Any, served: ServedInput) -> Value:
    """Return samples in the form of the net's inputs: (centre of x - mean) * scale.

    ``tf_saved_model.preprocess`` computes the same.
    """
    values = ops.cast(argument, "float32")
    if served.table is not None:
        fill, mean, mean_residual, std = served.table.float32_parts()
        if fill is not None:
            values = ops.where(ops.isnan(values), fill, values)
        return Value(caffe=(values - mean - mean_residual) / std if served.table.is_standardized else values)
    if not served.is_image:
        return Value(caffe=values)
    if served.shape[-1] == 3:
        values = values[..., ::-1]
    if served.transform is not None:
        values = _transformed(values, served.transform)
    return Value(last=values)


def _transformed(values: Any, options: TransformOptions) -> Any:
    mean = None if options.mean is None else options.mean.transpose(1, 2, 0)
    if options.crop_size:
        values = keras.layers.CenterCrop(options.crop_size, options.crop_size)(values)
        mean = None if mean is None else _centre(mean, options.crop_size)
    if mean is not None:
        values = _without_mean(values, mean)
    elif options.mean_values:
        values = values - np.asarray(options.mean_values, np.float32)
    return values if options.scale == 1 else keras.layers.Rescaling(options.scale)(values)


def _centre(mean: Array, size: int) -> Array:
    row, column = (mean.shape[0] - size) // 2, (mean.shape[1] - size) // 2
    return mean[row : row + size, column : column + size]


def _without_mean(values: Any, mean: Array) -> Any:
    """Subtract a mean image, stored with the file's weights and not in the text of the layers."""
    layer = keras.layers.Normalization(axis=(1, 2, 3))
    layer.build((None, *mean.shape))
    layer.adapt_mean.assign(mean)
    layer.adapt_variance.assign(np.ones_like(mean))
    layer.finalize_state()
    return layer(values)
