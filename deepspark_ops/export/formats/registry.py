"""Formats of a bundle, in the order of writing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from deepspark_ops.config.shared_options.bundle_formats import (
    CAFFE,
    KERAS,
    ONNX,
    SAVED_MODEL,
    TFLITE,
    TFLITE_FLOAT16,
    TFLITE_INT8,
)
from deepspark_ops.export.formats import caffe, keras_file, saved_model, tf_lite, tf_onnx
from deepspark_ops.export.formats.exported_model import Format

FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        SAVED_MODEL: saved_model.FORMAT,
        CAFFE: caffe.FORMAT,
        KERAS: keras_file.FORMAT,
        ONNX: tf_onnx.FORMAT,
        TFLITE: tf_lite.FLOAT32,
        TFLITE_FLOAT16: tf_lite.FLOAT16,
        TFLITE_INT8: tf_lite.INT8,
    }
)
"""Name -> format; names as in ``config.bundle_formats``."""
