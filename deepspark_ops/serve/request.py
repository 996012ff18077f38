"""From the body of a request to samples: the same checks as of ``deepspark predict``, each with its own sentence.

JSON is in the form that TensorFlow Serving takes, ``{"instances": [...]}``, so that a client may go on to that server.
An instance is what the bundle's input takes, as nested lists, with null for a missing number; ``{"b64": "..."}`` is an
image in a file's bytes. For a bundle with several inputs an instance is an object with one of these for each input.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

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
        body: As it was sent.
        form: What the bundle takes.

    Raises:
        RequestRefused: 400 for what is no such request, 413 for one of too many lists, 422 for an instance that the
            bundle does not take; the text names the instance, the input, what was found and what is expected.
    """
    n_lists = body.count(b"[") + body.count(b"{")
    if n_lists > MAX_LISTS:
        text = (
            f"found a body with {n_lists:,} lists and objects, expected at most {MAX_LISTS:,}; send fewer instances in"
            f" a request{', or images as files' if any(one.takes_images for one in form.inputs) else ''}"
        )
        raise RequestRefused(TOO_LARGE, text)
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(BAD_REQUEST, f"the body is no JSON: {error}") from error
    if not isinstance(request, dict) or set(request) not in ({"instances"}, {"instance"}):
        found = _kind(request)
        raise RequestRefused(BAD_REQUEST, f'found {found}, expected {{"instances": [...]}} or {{"instance": ...}}')
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
        pictures: (name, bytes) of each.
        form: What the bundle takes.

    Raises:
        RequestRefused: 400 without any, 422 for one that is no image or a bundle that takes no single image.
    """
    if not pictures:
        raise RequestRefused(BAD_REQUEST, "found no file in the form, expected at least one picture")
    if len(form.inputs) != 1 or not form.inputs[0].takes_images:
        raise RequestRefused(UNUSABLE, f"found a picture, expected JSON: {expected(form)}")
    return [_usable(form, name, InputRecord(name, content)) for name, content in pictures]


def expected(form: BundleForm) -> str:
    """Return in words what an instance is."""
    inputs = {one.contract.name: _expected_of(one.contract) for one in form.inputs}
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
        given = {form.names[0]: instance}
    elif isinstance(instance, dict) and set(instance) == set(form.names):
        given = instance
    else:
        found = _kind(instance)
        raise RequestRefused(UNUSABLE, f"{where}: found {found}, expected {expected(form)}")
    return tuple(_values(given[one.contract.name], where, one) for one in form.inputs)


def _values(given: Any, where: str, form: SampleForm) -> Values:
    place = f'{where}: input "{form.contract.name}"'
    if isinstance(given, Mapping):
        return _image(given, place, form)
    array = _array(given, place, form)
    if not form.takes_images:
        return array
    if form.crop_size and min(array.shape[:2]) < form.crop_size:
        raise RequestRefused(
            UNUSABLE,
            f"{place}: found {array.shape[0]} x {array.shape[1]} pixels, expected at least"
            f" {form.crop_size} x {form.crop_size}, which the bundle cuts out",
        )
    if problem := form.unusable_pixels(array):
        raise RequestRefused(UNUSABLE, f"{place}: {problem}")
    stored = array[..., ::-1] if form.contract.channels == "RGB" else array
    return np.ascontiguousarray(stored.transpose(2, 0, 1))


def _image(given: Mapping[str, Any], place: str, form: SampleForm) -> Values:
    encoded = given.get(_ENCODED)
    if set(given) != {_ENCODED} or not isinstance(encoded, str) or not form.takes_images:
        raise RequestRefused(UNUSABLE, f"{place}: found {_kind(given)}, expected {_expected_of(form.contract)}")
    try:
        return form.values(base64.b64decode(encoded, validate=True))[0]
    except binascii.Error as error:
        raise RequestRefused(UNUSABLE, f"{place}: b64 is no base64: {error}") from error
    except RecordError as error:
        raise RequestRefused(UNUSABLE, f"{place}: {error}") from error


def _array(given: Any, place: str, form: SampleForm) -> Values:
    contract = form.contract
    wanted = f"expected {_expected_of(contract)}"
    try:
        array = np.asarray(given)
    except ValueError as error:  # numpy's own words speak of its types
        raise RequestRefused(UNUSABLE, f"{place}: found lists of unequal lengths, {wanted}") from error
    if array.dtype.kind == "O" and array.ndim and _are_numbers_or_null(array):
        with suppress(OverflowError):
            array = array.astype(np.float64)  # null becomes NaN, a missing number
    if array.dtype.kind not in "iuf":
        raise RequestRefused(UNUSABLE, f"{place}: found {_kind(given)} that is no numbers, {wanted}")
    shape = contract.shape[1:]
    fits = len(shape) == array.ndim and all(
        found == extent or (extent < 0 < found) for found, extent in zip(array.shape, shape, strict=True)
    )
    if not fits:
        raise RequestRefused(UNUSABLE, f"{place}: found shape {_tuple(array.shape)}, {wanted}")
    if contract.dtype == "uint8":
        if problem := form.unusable_number(array):
            raise RequestRefused(UNUSABLE, f"{place}: {problem}, {wanted}")
        if not ((array >= 0) & (array <= 255) & (array == np.rint(array))).all():
            raise RequestRefused(UNUSABLE, f"{place}: found numbers that are not whole or not in 0 to 255, {wanted}")
        return array.astype(np.uint8)
    with np.errstate(over="ignore"):
        values = array.astype(np.float32)
    if problem := form.unusable_number(values):
        raise RequestRefused(UNUSABLE, f"{place}: {problem}, {wanted}")
    return values


def _are_numbers_or_null(array: Values) -> bool:
    """Are the elements JSON's numbers, and null for those that are missing? An integer may be a long one."""
    return all(one is None or (isinstance(one, int | float) and not isinstance(one, bool)) for one in array.flat)


def _usable(form: BundleForm, where: str, record: InputRecord) -> Parts:
    sample = form.sample(record)
    if sample.values is None:
        raise RequestRefused(UNUSABLE, f'{where}: input "{form.names[0]}": {sample.error}')
    return sample.values


def _tuple(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object with keys {', '.join(sorted(value)[:8]) or '(none)'}"
    kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
