"""``model.onnx``: the SavedModel's graph in ONNX's operations, with the preprocessing inside, for any batch size.

tf2onnx writes the file, onnx's checker examines the file, onnxruntime runs the file in a separate process.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from caffe_import.extras import MissingExtra, require
from deepspark_ops.export.formats.exported_model import NEEDS_ITS_BATCH, CannotHave, ExportedModel, Format, Reading
from deepspark_ops.export.manifest import ONNX_NAME

OPSET: Final = 17
"""Version of ONNX's operations: the version of onnxruntime 1.12 (2022), so that older servers read the file, too."""

_READER = Path(__file__).with_name("onnx_reader.py")
_MAX_BYTES = 2**31 - 2**26
"""protobuf limits a single file to 2 GiB; 64 MiB are reserved for the graph."""
_FAILED = "Failed to convert node"
_NODE_ERRORS = (ValueError, NotImplementedError, RuntimeError)
"""Errors that tf2onnx raises if it cannot convert an operation with its attributes."""
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
        raise CannotHave(NEEDS_ITS_BATCH)
    own_forms = OwnForms()
    (model.folder / ONNX_NAME).write_bytes(_converted(model, own_forms))
    _refuse_malformed(model.folder / ONNX_NAME, own_forms)


class OwnForms:
    """DeepSpark's handlers for operations unknown to tf2onnx, for a single conversion.

    Attributes:
        n_used: Number of calls of the handlers.
        faults: Exceptions inside a handler: faults of DeepSpark, which the converter only logs.
    """

    def __init__(self) -> None:
        """Begin with nothing used."""
        self.n_used = 0
        self.faults: list[Exception] = []

    def handlers(self) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
        """Return the handlers in tf2onnx's form."""
        from deepspark_ops.export.formats.onnx_spread import HANDLERS

        return {name: (self._noted(handler), arguments) for name, (handler, arguments) in HANDLERS.items()}

    def _noted(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            self.n_used += 1
            try:
                return handler(*arguments)
            except Exception as error:
                self.faults.append(error)
                raise

        return noted


def _converted(model: ExportedModel, own_forms: OwnForms) -> bytes:
    """Return the file's bytes.

    Raises:
        CannotHave: An operation has no ONNX form; the message names the operation.
        Exception: Any other error, in a handler, in the graph or in the converter: a fault.
    """
    from tf2onnx import convert

    from deepspark_ops.export.formats.onnx_constants import put_constants

    function, signature = model.served().with_blobs()
    function.get_concrete_function(*signature)  # traced before the conversion: an error of a layer is no error of ONNX
    with _captured_log() as records:
        try:
            onnx_model, _ = convert.from_function(
                function, input_signature=signature, opset=OPSET, custom_op_handlers=own_forms.handlers()
            )
        except Exception:
            _refuse_without_form(records, own_forms)  # the log has the reason
            raise
    _refuse_without_form(records, own_forms)
    blobs = model.build(model.unit_batch).params.views(model.params).values()
    put_constants(onnx_model, {f"blob_{at}": blob for at, blob in enumerate(blobs)})
    onnx_model.graph.name = model.deploy.name or "model"
    onnx_model.graph.doc_string = "Exported by DeepSpark; README.md in the same folder describes inputs and outputs"
    _name_axes(onnx_model.graph)
    data: bytes = onnx_model.SerializeToString()
    return data


def _refuse_without_form(records: list[logging.LogRecord], own_forms: OwnForms) -> None:
    """Raise an error that tf2onnx only logged: after the log line tf2onnx leaves the operation in the graph.

    Raises:
        CannotHave: tf2onnx has no form of an operation, or no form for its attributes.
        Exception: A fault of DeepSpark or of the converter.
    """
    if own_forms.faults:
        raise own_forms.faults[0]
    operations = sorted({name for record in records for name in _NO_FORM.findall(record.getMessage())})
    if operations:
        msg = f"ONNX has no form of {', '.join(operations)}"
        raise CannotHave(msg)
    for record in records:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not record.getMessage().startswith(_FAILED):
            continue
        if not isinstance(error, _NODE_ERRORS):
            raise error
        message_lines = str(error).strip().splitlines() or ["tf2onnx gave no reason"]
        raise CannotHave(message_lines[0]) from error


def _name_axes(graph: Any) -> None:
    """Name every axis of unknown extent, for programs that show the graph: N for the batch, then the position."""
    for value in (*graph.input, *graph.output):
        for axis, extent in enumerate(value.type.tensor_type.shape.dim):
            if not extent.HasField("dim_value"):
                extent.dim_param = "N" if axis == 0 else f"{value.name}_axis_{axis}"


@contextmanager
def _captured_log() -> Iterator[list[logging.LogRecord]]:
    """Collect the log records of tf2onnx, and keep them out of the program's log."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record)  # type: ignore[method-assign]
    logger = logging.getLogger("tf2onnx")
    previous_propagate = logger.propagate
    logger.propagate = False
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tf2onnx uses deprecated functions of numpy and TensorFlow
            yield records
    finally:
        logger.removeHandler(handler)
        logger.propagate = previous_propagate


def _refuse_malformed(path: Path, own_forms: OwnForms) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        if own_forms.n_used:  # the fault may be in DeepSpark's handler
            raise
        msg = f"onnx's checker refuses it: {str(error).strip().splitlines()[0]}"
        raise CannotHave(msg) from error


def _read(model: ExportedModel) -> tuple[Reading, ...]:
    return model.read_by(_READER, "onnxruntime", ONNX_NAME)


FORMAT = Format(files=(ONNX_NAME,), write=_write, read=_read, is_read_apart=True)
