"""Option of the stages with a bundle: the formats of the model."""

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
"""Equivalent to no names."""
BY_DEFAULT: Final = (SAVED_MODEL, CAFFE, KERAS, ONNX, TFLITE)
"""Exact formats; the other formats are smaller, less exact, and written only on request."""


def _formats(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.strip() == ALL:
        return None
    names = tuple(part.strip() for part in value.split(",") if part.strip())
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
