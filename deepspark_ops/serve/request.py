"""Samples from the body of a request, with the checks of ``deepspark predict``; each check has a message.

JSON has TensorFlow Serving's form, ``{"instances": [...]}``, so that a client may change to TensorFlow Serving. An
instance is nested lists of the input's shape, with null for a missing number, or ``{"b64": "..."}`` with the bytes of
an image file. For a bundle with several inputs an instance is an object with a value for each input.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from caffe_import.net.shapes.axes import shape_text
from deepspark_ops.export.manifest import InputContract
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.predict.record import InputRecord, Values
from deepspark_ops.predict.samples import BundleForm, Parts, SampleForm
from deepspark_ops.serve.refusal import RequestRefused

BAD_REQUEST: Final = 400
UNUSABLE: Final = 422
TOO_LARGE: Final = 413
MAX_LISTS: Final = 1_000_000
"""Lists and objects of a JSON body: 19 images of 224 x 224 pixels. While the JSON parser works no other request is
answered, and lists cost most of the parser's time."""
_ENCODED = "b64"


def samples_of_json(body: bytes, form: BundleForm) -> list[Parts]:
    """Return the samples of a JSON request.

    Args:
        body: Bytes of the client.
        form: Form of the bundle's samples.

    Raises:
        RequestRefused: 400: the body is no request; 413: too many lists; 422: the bundle does not take an instance. The
            text names the instance, the input, the found value and the expected value.
    """
    n_lists = body.count(b"[") + body.count(b"{")
    if n_lists > MAX_LISTS:
        text = (
            f"found a body with {n_lists:,} lists and objects, expected at most {MAX_LISTS:,}; send fewer instances in"
            f" a request{', or images as files' if any(input_form.takes_images for input_form in form.inputs) else ''}"
        )
        raise RequestRefused(TOO_LARGE, text)
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(BAD_REQUEST, f"the body is no JSON: {error}") from error
    if not isinstance(request, dict) or set(request) not in ({"instances"}, {"instance"}):
        kind = _kind(request)
        raise RequestRefused(BAD_REQUEST, f'found {kind}, expected {{"instances": [...]}} or {{"instance": ...}}')
    if "instance" in request:
        return [_sample(request["instance"], "instance", form)]
    instances = request["instances"]
    if not isinstance(instances, list):
        raise RequestRefused(BAD_REQUEST, f"instances: found {_kind(instances)}, expected a list of instances")
    if not instances:
        raise RequestRefused(UNUSABLE, f"instances: found an empty list, expected at least one: {expected(form)}")
    return [_sample(instance, f"instances[{row}]", form) for row, instance in enumerate(instances)]


def samples_of_pictures(pictures: Sequence[tuple[str, bytes]], form: BundleForm) -> list[Parts]:
    """Return the samples of uploaded files.

    Args:
        pictures: (name, bytes) of each file.
        form: Form of the bundle's samples.

    Raises:
        RequestRefused: 400: no file; 422: a file is no image, or the bundle does not take a single image.
    """
    if not pictures:
        raise RequestRefused(BAD_REQUEST, "found no file in the form, expected at least one picture")
    if len(form.inputs) != 1 or not form.inputs[0].takes_images:
        raise RequestRefused(UNUSABLE, f"found a picture, expected JSON: {expected(form)}")
    return [_usable(form, name, InputRecord(name, content)) for name, content in pictures]


def expected(form: BundleForm) -> str:
    """Return the description of an instance."""
    inputs = {input_form.contract.name: _expected_of(input_form.contract) for input_form in form.inputs}
    if len(inputs) == 1:
        return next(iter(inputs.values()))
    return "an object with " + "; ".join(f'"{name}": {text}' for name, text in inputs.items())


def _expected_of(contract: InputContract) -> str:
    image = ' or {"b64": "..."} of an image file' if contract.takes_images else ""
    return f"{_shape_text(contract)}{image}"


def _shape_text(contract: InputContract) -> str:
    extents = ", ".join("any" if extent < 0 else str(extent) for extent in contract.shape[1:])
    axes = contract.axes.removeprefix("N, ")
    channels = f", {contract.channels}" if contract.channels else ""
    return f"{contract.dtype} of shape ({extents}) ({axes}{channels})"


def _sample(instance: Any, where: str, form: BundleForm) -> Parts:
    if len(form.inputs) == 1:
        values = {form.names[0]: instance}
    elif isinstance(instance, dict) and set(instance) == set(form.names):
        values = instance
    else:
        kind = _kind(instance)
        raise RequestRefused(UNUSABLE, f"{where}: found {kind}, expected {expected(form)}")
    return tuple(_values(values[input_form.contract.name], where, input_form) for input_form in form.inputs)


def _values(json_value: Any, where: str, form: SampleForm) -> Values:
    where = f'{where}: input "{form.contract.name}"'
    if isinstance(json_value, Mapping):
        return _image(json_value, where, form)
    array = _array(json_value, where, form)
    if not form.takes_images:
        return array
    if form.crop_size and min(array.shape[:2]) < form.crop_size:
        raise RequestRefused(
            UNUSABLE,
            f"{where}: found {array.shape[0]} x {array.shape[1]} pixels, expected at least"
            f" {form.crop_size} x {form.crop_size}, which the bundle cuts out",
        )
    if problem := form.unusable_pixels(array):
        raise RequestRefused(UNUSABLE, f"{where}: {problem}")
    stored = array[..., ::-1] if form.contract.channels == "RGB" else array
    return np.ascontiguousarray(stored.transpose(2, 0, 1))


def _image(json_object: Mapping[str, Any], where: str, form: SampleForm) -> Values:
    encoded = json_object.get(_ENCODED)
    if set(json_object) != {_ENCODED} or not isinstance(encoded, str) or not form.takes_images:
        raise RequestRefused(UNUSABLE, f"{where}: found {_kind(json_object)}, expected {_expected_of(form.contract)}")
    try:
        return form.values(base64.b64decode(encoded, validate=True))[0]
    except binascii.Error as error:
        raise RequestRefused(UNUSABLE, f"{where}: b64 is no base64: {error}") from error
    except RecordError as error:
        raise RequestRefused(UNUSABLE, f"{where}: {error}") from error


def _array(json_value: Any, where: str, form: SampleForm) -> Values:
    contract = form.contract
    expectation = f"expected {_expected_of(contract)}"
    try:
        array = np.asarray(json_value)
    except ValueError as error:  # numpy's text speaks of numpy's types
        raise RequestRefused(UNUSABLE, f"{where}: found lists of unequal lengths, {expectation}") from error
    if array.dtype.kind == "O" and array.ndim and _are_numbers_or_null(array):
        with suppress(OverflowError):
            array = array.astype(np.float64)  # null becomes NaN, a missing number
    if array.dtype.kind not in "iuf":
        raise RequestRefused(UNUSABLE, f"{where}: found {_kind(json_value)} that is no numbers, {expectation}")
    shape = contract.shape[1:]
    fits = len(shape) == array.ndim and all(
        size == extent or (extent < 0 < size) for size, extent in zip(array.shape, shape, strict=True)
    )
    if not fits:
        raise RequestRefused(UNUSABLE, f"{where}: found shape {shape_text(array.shape)}, {expectation}")
    if contract.dtype == "uint8":
        if problem := form.unusable_number(array):
            raise RequestRefused(UNUSABLE, f"{where}: {problem}, {expectation}")
        if not ((array >= 0) & (array <= 255) & (array == np.rint(array))).all():
            raise RequestRefused(
                UNUSABLE, f"{where}: found numbers that are not whole or not in 0 to 255, {expectation}"
            )
        return array.astype(np.uint8)
    with np.errstate(over="ignore"):
        values = array.astype(np.float32)
    if problem := form.unusable_number(values):
        raise RequestRefused(UNUSABLE, f"{where}: {problem}, {expectation}")
    return values


def _are_numbers_or_null(array: Values) -> bool:
    """Return whether all elements are JSON's numbers or null. An integer may have any number of digits."""
    return all(item is None or (isinstance(item, int | float) and not isinstance(item, bool)) for item in array.flat)


def _usable(form: BundleForm, where: str, record: InputRecord) -> Parts:
    sample = form.sample(record)
    if sample.values is None:
        raise RequestRefused(UNUSABLE, f'{where}: input "{form.names[0]}": {sample.error}')
    return sample.values


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object with keys {', '.join(sorted(value)[:8]) or '(none)'}"
    kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
