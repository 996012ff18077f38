"""Formats of a bundle, in the order of writing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from deepspark_ops.config.shared_options.bundle_formats import (
    CAFFE,
    KERAS,
    ONNX,
    SAVED_MODEL,
    TFLITE,
    TFLITE_FLOAT16,
    TFLITE_INT8,
)
from deepspark_ops.export.formats import caffe, keras_file, tf_lite, tf_onnx
from deepspark_ops.export.formats.exported_model import ExportedModel, Format, Reading
from deepspark_ops.export.manifest import SAVED_MODEL_NAME
from deepspark_ops.export.tf_saved_model import load_saved_model, write_saved_model


def _read_saved_model(model: ExportedModel) -> tuple[Reading, ...]:
    served_answers = load_saved_model(model.folder / SAVED_MODEL_NAME)(model.requests())
    answers = {name: served_answers[name].astype(np.float64) for name in model.output_names}
    return (Reading(SAVED_MODEL_NAME, "TensorFlow", answers),)


_SAVED_MODEL: Final = Format(
    files=(SAVED_MODEL_NAME,),
    write=lambda model: write_saved_model(model.folder / SAVED_MODEL_NAME, model.served()),
    read=_read_saved_model,
)

FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        SAVED_MODEL: _SAVED_MODEL,
        CAFFE: caffe.FORMAT,
        KERAS: keras_file.FORMAT,
        ONNX: tf_onnx.FORMAT,
        TFLITE: tf_lite.FLOAT32,
        TFLITE_FLOAT16: tf_lite.FLOAT16,
        TFLITE_INT8: tf_lite.INT8,
    }
)
"""Name -> format; names as in ``config.bundle_formats``."""
