"""``model.tflite``: TensorFlow Lite's file for phones and small devices, with the preprocessing inside, in float32."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf
from tensorflow.lite.python.convert_phase import ConverterError

from deepspark_ops.export.formats.exported_model import CannotHave, ExportedModel, Format, Reading
from deepspark_ops.export.formats.outside_reader import ReaderFailed, read_outside
from deepspark_ops.export.manifest import SAVED_MODEL_NAME, TFLITE_NAME
from deepspark_ops.export.tf_saved_model import SCORES, SIGNATURE, write_saved_model

_READER = Path(__file__).with_name("tf_lite_reader.py")
_OPERATION = re.compile(r"\btf\.[A-Z]\w+")


def _write(model: ExportedModel) -> None:
    with _saved_model(model) as folder:
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=[SIGNATURE])
        try:
            data = converter.convert()
        except (ConverterError, RuntimeError, ValueError) as error:
            raise CannotHave(_reason(str(error))) from error
    (model.folder / TFLITE_NAME).write_bytes(data)


@contextmanager
def _saved_model(model: ExportedModel) -> Iterator[Path]:
    """Give the bundle's SavedModel, or one that is gone afterwards where the bundle has none."""
    written = model.folder / SAVED_MODEL_NAME
    if written.is_dir():
        yield written
        return
    with tempfile.TemporaryDirectory(prefix="deepspark-tflite-") as place:
        folder = Path(place, SAVED_MODEL_NAME)
        write_saved_model(folder, model.build, model.params, model.inputs, model.probability, trial=model.prepared())
        yield folder


def _reason(said: str) -> str:
    operations = sorted(set(_OPERATION.findall(said)))
    if operations:
        return f"TensorFlow Lite has no form of {', '.join(operations)}"
    return said.strip().splitlines()[0] if said.strip() else "TensorFlow Lite's converter gave no reason"


def _read(model: ExportedModel) -> tuple[Reading, ...]:
    try:
        scores = read_outside(_READER, [str(model.folder / TFLITE_NAME), SIGNATURE, SCORES], model.requests())
    except ReaderFailed as failure:
        msg = f"TensorFlow Lite's interpreter cannot run it: {failure}"
        raise CannotHave(msg) from failure
    return (Reading(TFLITE_NAME, "TensorFlow Lite's interpreter", scores),)


FORMAT = Format(files=(TFLITE_NAME,), write=_write, read=_read)
