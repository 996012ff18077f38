"""``model.onnx``: the graph of the SavedModel in ONNX's operations, with the preprocessing inside, batch of any size.

Written by tf2onnx, examined by onnx's own checker, and run by onnxruntime in a process of its own.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from caffe_import.extras import MissingExtra, require
from deepspark_ops.export.formats.exported_model import CannotHave, ExportedModel, Format, Reading
from deepspark_ops.export.formats.outside_reader import ReaderFailed, read_outside
from deepspark_ops.export.manifest import ONNX_NAME

OPSET: Final = 17
"""Version of ONNX's operations: that of onnxruntime 1.12 (2022), so that older servers read the file too."""

_READER = Path(__file__).with_name("onnx_reader.py")
_MAX_BYTES = 2**31 - 2**26
"""A file of one part holds 2 GiB (protobuf); some of it is not parameters."""
_NO_FORM = re.compile(r"Tensorflow op \[[^:\]]*: (\w+)\] is not supported")


def _write(model: ExportedModel) -> None:
    try:
        require("tf2onnx", "onnx", "onnxruntime", part="format onnx")
    except MissingExtra as missing:
        raise CannotHave(str(missing)) from missing
    if model.params.nbytes > _MAX_BYTES:
        msg = f"its parameters take {model.params.nbytes:,} bytes, a file of ONNX holds {_MAX_BYTES:,}"
        raise CannotHave(msg)
    if not model.served().takes_any_batch:
        msg = "the net computes with the size of its batch (a layer moves or removes the batch axis)"
        raise CannotHave(msg)
    (model.folder / ONNX_NAME).write_bytes(_converted(model))
    _refuse_malformed(model.folder / ONNX_NAME)


def _converted(model: ExportedModel) -> bytes:
    """Return the file's bytes.

    Raises:
        CannotHave: An operation without an ONNX form; the message names it.
    """
    from tf2onnx import convert

    from deepspark_ops.export.formats.onnx_constants import put_constants
    from deepspark_ops.export.formats.onnx_spread import HANDLERS

    function, signature = model.served().with_blobs()
    with _told() as lines:
        try:
            made, _ = convert.from_function(
                function, input_signature=signature, opset=OPSET, custom_op_handlers=HANDLERS
            )
        except (ValueError, TypeError, KeyError, NotImplementedError, AssertionError, RuntimeError) as error:
            raise CannotHave(_reason([*lines, str(error)])) from error
    if any(_NO_FORM.search(line) for line in lines):
        raise CannotHave(_reason(lines))
    blobs = model.build(1).params.views(model.params).values()
    put_constants(made, {f"blob_{at}": blob for at, blob in enumerate(blobs)})
    made.graph.name = model.deploy.name or "model"
    made.graph.doc_string = "Exported by DeepSpark; README.md beside this file says what it takes and gives"
    _name_axes(made.graph)
    data: bytes = made.SerializeToString()
    return data


def _name_axes(graph: Any) -> None:
    """Call every axis of any extent by a name that a reader shows: N for the batch, then its position."""
    for value in (*graph.input, *graph.output):
        for axis, extent in enumerate(value.type.tensor_type.shape.dim):
            if not extent.HasField("dim_value"):
                extent.dim_param = "N" if axis == 0 else f"{value.name}_axis_{axis}"


@contextmanager
def _told() -> Iterator[list[str]]:
    """Collect what tf2onnx logs, so that it is read here alone."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tf2onnx")
    before = logger.propagate
    logger.propagate = False
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it uses what newer releases of numpy and TensorFlow call old
            yield lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def _reason(lines: list[str]) -> str:
    operations = sorted({name for line in lines for name in _NO_FORM.findall(line)})
    if operations:
        return f"ONNX has no form of {', '.join(operations)}"
    return lines[-1].strip().splitlines()[0] if lines[-1].strip() else "tf2onnx gave no reason"


def _refuse_malformed(path: Path) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        msg = f"onnx's checker refuses it: {str(error).strip().splitlines()[0]}"
        raise CannotHave(msg) from error


def _read(model: ExportedModel) -> tuple[Reading, ...]:
    try:
        answers = read_outside(_READER, [str(model.folder / ONNX_NAME)], model.requests(), model.output_names)
    except ReaderFailed as failure:
        msg = f"onnxruntime cannot run it: {failure}"
        raise CannotHave(msg) from failure
    return (Reading(ONNX_NAME, "onnxruntime", answers),)


FORMAT = Format(files=(ONNX_NAME,), write=_write, read=_read, is_read_apart=True)
