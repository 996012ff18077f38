"""TensorFlow Lite's files for phones and small devices, with the preprocessing inside.

``model.tflite`` is float32 and computes the trained numbers. ``model_float16.tflite`` holds rounded weights, half as
large; ``model_int8.tflite`` computes in 8 bits, with ranges measured on training samples. The check of these two
compares the predicted classes.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from tensorflow.lite.python.convert_phase import ConverterError

from caffe_import.tf_graph import tensorflow as tf
from deepspark_ops.export.formats.exported_model import NEEDS_ITS_BATCH, CannotHave, ExportedModel, Format
from deepspark_ops.export.manifest import SAVED_MODEL_NAME, TFLITE_FLOAT16_NAME, TFLITE_INT8_NAME, TFLITE_NAME
from deepspark_ops.export.tf_saved_model import SIGNATURE, write_saved_model

Convert = Callable[[], bytes]
Prepare = Callable[[Any, ExportedModel], Convert]

_READER = Path(__file__).with_name("tf_lite_reader.py")
_HAS_NO_FORM = "DepthwiseConv2dNativeBackpropInput"
"""The operation of a Deconvolution with a group per channel: an FCN's upsampling."""
_DIVISIONS = ("RealDiv", "DivNoNan", "Div")
_OPERATION = re.compile(r"\btf\.[A-Z]\w+")


def _write(model: ExportedModel, file: str, prepare: Prepare) -> None:
    with _saved_model(model) as folder:
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=[SIGNATURE])
        convert = prepare(converter, model)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the interpreter that measures the ranges will move to another package
                data = convert()
        except (ConverterError, RuntimeError, ValueError) as error:
            is_of_batch = not model.served().takes_any_batch and not _OPERATION.search(str(error))
            raise CannotHave(NEEDS_ITS_BATCH if is_of_batch else _reason(str(error))) from error
    (model.folder / file).write_bytes(data)


def _as_trained(converter: Any, model: ExportedModel) -> Convert:
    """Leave all numbers in float32."""
    return cast(Convert, converter.convert)


def _to_float16(converter: Any, model: ExportedModel) -> Convert:
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]
    return cast(Convert, converter.convert)


def _to_int8(converter: Any, model: ExportedModel) -> Convert:
    calibration = model.calibration
    if calibration is None:
        msg = "the ranges of 8 bits are taken from training samples, and there are none; give a dataset"
        raise CannotHave(msg)
    n_samples = len(next(iter(calibration.values())))

    def samples() -> Iterator[tuple[str, dict[str, Any]]]:
        for row in range(n_samples):
            yield SIGNATURE, {name: values[row : row + 1] for name, values in calibration.items()}

    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = samples
    if any(map(model.served().has_operation, _DIVISIONS)):
        return lambda: _with_float_divisions(converter)
    return cast(Convert, converter.convert)


def _with_float_divisions(converter: Any) -> bytes:
    """Return the file with divisions in float32: a small divisor is 0 in 8 bits, and the interpreter refuses 0."""
    options = tf.lite.experimental.QuantizationDebugOptions(denylisted_ops=["DIV"])
    debugger = tf.lite.experimental.QuantizationDebugger(
        converter=converter, debug_dataset=converter.representative_dataset, debug_options=options
    )
    return cast(bytes, debugger.get_nondebug_quantized_model())


@contextmanager
def _saved_model(model: ExportedModel) -> Iterator[Path]:
    """Yield a SavedModel for TensorFlow Lite: the bundle's, or a temporary SavedModel."""
    written = model.folder / SAVED_MODEL_NAME
    served = model.served()
    if served.has_operation(_HAS_NO_FORM):
        served = model.served(is_portable=True)
    elif written.is_dir():
        yield written
        return
    with tempfile.TemporaryDirectory(prefix="deepspark-tflite-") as temporary_folder:
        folder = Path(temporary_folder, SAVED_MODEL_NAME)
        write_saved_model(folder, served)
        yield folder


def _reason(converter_message: str) -> str:
    operations = sorted(set(_OPERATION.findall(converter_message)))
    if operations:
        return f"TensorFlow Lite has no form of {', '.join(operations)}"
    return (
        converter_message.strip().splitlines()[0]
        if converter_message.strip()
        else "TensorFlow Lite's converter gave no reason"
    )


def _format(file: str, prepare: Prepare, min_agreement: float | None = None) -> Format:
    return Format(
        files=(file,),
        write=lambda model: _write(model, file, prepare),
        read=lambda model: model.read_by(
            _READER, "TensorFlow Lite's interpreter", file, SIGNATURE, min_agreement=min_agreement
        ),
        is_read_apart=True,
    )


FLOAT32 = _format(TFLITE_NAME, _as_trained)
FLOAT16 = _format(TFLITE_FLOAT16_NAME, _to_float16, min_agreement=0.95)
INT8 = _format(TFLITE_INT8_NAME, _to_int8, min_agreement=0.9)
