"""``model.onnx``: the graph of the SavedModel in ONNX's operations, with the preprocessing inside, batch of any size.

Written by tf2onnx, examined by onnx's own checker, and run by onnxruntime in a process of its own.
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
from deepspark_ops.export.formats.exported_model import CannotHave, ExportedModel, Format, Reading
from deepspark_ops.export.formats.outside_reader import ReaderFailed, read_outside
from deepspark_ops.export.manifest import ONNX_NAME

OPSET: Final = 17
"""Version of ONNX's operations: that of onnxruntime 1.12 (2022), so that older servers read the file too."""

_READER = Path(__file__).with_name("onnx_reader.py")
_MAX_BYTES = 2**31 - 2**26
"""A file of one part holds 2 GiB (protobuf); some of it is not parameters."""
_FAILED = "Failed to convert node"
_SAID_OF_A_NODE = (ValueError, NotImplementedError, RuntimeError)
"""What tf2onnx's own code for an operation raises where it has no form for the way that it is used."""
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
    own = OwnForms()
    (model.folder / ONNX_NAME).write_bytes(_converted(model, own))
    _refuse_malformed(model.folder / ONNX_NAME, own)


class OwnForms:
    """The forms that we give to operations tf2onnx has none of, while one net is converted.

    Attributes:
        n_used: How often one was asked for.
        faults: What went wrong inside of one: a fault of ours, which the converter only logs.
    """

    def __init__(self) -> None:
        """Begin with nothing used."""
        self.n_used = 0
        self.faults: list[Exception] = []

    def handlers(self) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
        """Return them as tf2onnx takes them."""
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


def _converted(model: ExportedModel, own: OwnForms) -> bytes:
    """Return the file's bytes.

    Raises:
        CannotHave: The converter said that an operation has no ONNX form; the message names it.
        Exception: Anything else that goes wrong, in our handlers, our graph or the converter: a fault.
    """
    from tf2onnx import convert

    from deepspark_ops.export.formats.onnx_constants import put_constants

    function, signature = model.served().with_blobs()
    function.get_concrete_function(*signature)  # the converter would trace it: a fault of a layer is none of ONNX
    with _told() as records:
        try:
            made, _ = convert.from_function(
                function, input_signature=signature, opset=OPSET, custom_op_handlers=own.handlers()
            )
        except Exception:
            _refuse_without_form(records, own)  # what was logged before says why
            raise
    _refuse_without_form(records, own)
    blobs = model.build(model.unit_batch).params.views(model.params).values()
    put_constants(made, {f"blob_{at}": blob for at, blob in enumerate(blobs)})
    made.graph.name = model.deploy.name or "model"
    made.graph.doc_string = "Exported by DeepSpark; README.md beside this file says what it takes and gives"
    _name_axes(made.graph)
    data: bytes = made.SerializeToString()
    return data


def _refuse_without_form(records: list[logging.LogRecord], own: OwnForms) -> None:
    """Raise what was logged while operations were converted; tf2onnx itself goes on with the operation left as it is.

    Raises:
        CannotHave: tf2onnx has no form of an operation, or none for the way it is used here.
        Exception: A fault of ours, or of the converter's code.
    """
    if own.faults:
        raise own.faults[0]
    operations = sorted({name for record in records for name in _NO_FORM.findall(record.getMessage())})
    if operations:
        msg = f"ONNX has no form of {', '.join(operations)}"
        raise CannotHave(msg)
    for record in records:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not record.getMessage().startswith(_FAILED):
            continue
        if not isinstance(error, _SAID_OF_A_NODE):
            raise error
        told = str(error).strip().splitlines() or ["tf2onnx gave no reason"]
        raise CannotHave(told[0]) from error


def _name_axes(graph: Any) -> None:
    """Call every axis of any extent by a name that a reader shows: N for the batch, then its position."""
    for value in (*graph.input, *graph.output):
        for axis, extent in enumerate(value.type.tensor_type.shape.dim):
            if not extent.HasField("dim_value"):
                extent.dim_param = "N" if axis == 0 else f"{value.name}_axis_{axis}"


@contextmanager
def _told() -> Iterator[list[logging.LogRecord]]:
    """Collect what tf2onnx logs, so that it is read here alone."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record)  # type: ignore[method-assign]
    logger = logging.getLogger("tf2onnx")
    before = logger.propagate
    logger.propagate = False
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it uses what newer releases of numpy and TensorFlow call old
            yield records
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def _refuse_malformed(path: Path, own: OwnForms) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        if own.n_used:  # it may be what we put there
            raise
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
