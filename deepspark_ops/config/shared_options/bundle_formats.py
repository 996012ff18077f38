"""The formats that a bundle can hold its model in, as an option of the stages that write one."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from deepspark_ops.config.base import EXPERT

SAVED_MODEL: Final = "saved_model"
CAFFE: Final = "caffe"
TFLITE: Final = "tflite"
TFLITE_FLOAT16: Final = "tflite_float16"
TFLITE_INT8: Final = "tflite_int8"
ONNX: Final = "onnx"
KERAS: Final = "keras"
BUNDLE_FORMATS: Final = (SAVED_MODEL, CAFFE, KERAS, ONNX, TFLITE, TFLITE_FLOAT16, TFLITE_INT8)
ALL: Final = "all"
"""The same as naming none."""
BY_DEFAULT: Final = (SAVED_MODEL, CAFFE, KERAS, ONNX, TFLITE)
"""Those that compute what was trained; the others are smaller and less exact, and written only where asked for."""


def _formats(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    if given.strip() == ALL:
        return None
    names = tuple(part.strip() for part in given.split(",") if part.strip())
    if not names or set(names) - set(BUNDLE_FORMATS):
        msg = f"must be {ALL}, or one or several of {', '.join(BUNDLE_FORMATS)}, with commas between them"
        raise ValueError(msg)
    return tuple(name for name in BUNDLE_FORMATS if name in names)


BundleFormats = Annotated[
    Annotated[tuple[str, ...], WithJsonSchema({"type": "string"}, mode="validation")] | None,
    BeforeValidator(_formats),
    Field(
        title="Formats",
        description=f"What the bundle holds: {', '.join(BUNDLE_FORMATS)}, with commas between them; default, or {ALL}:"
        f" all that the net can have of {', '.join(BY_DEFAULT)}. Evaluation and models in production need saved_model"
        " and caffe",
        json_schema_extra=EXPERT,
    ),
]
"""Names of ``BUNDLE_FORMATS`` in their order; a text in forms and options; None for all of
``BY_DEFAULT`` that the net can have."""
