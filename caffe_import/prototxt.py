"""Prototxt files, text or binary, to messages and back; every mistake is told with line, column and excerpt.

Reading upgrades: what leaves this module is in Caffe's current form (see ``upgrade``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from caffe_import.errors import PrototxtError, did_you_mean
from caffe_import.proto import caffe_pb2
from caffe_import.prototxt_scan import (
    Block,
    Place,
    layer_of,
    line_and_column,
    offset_of,
    scan_prototxt,
)
from caffe_import.upgrade import upgrade_net, upgrade_solver

_M = TypeVar("_M", bound=Message)

MAX_TEXT_BYTES = 32 * 1024 * 1024
"""Longest prototxt read as text. The largest published nets are below 1 MiB; the text parser is slow Python."""

MAX_BINARY_BYTES = 2**31 - 1
"""Protobuf's own bound on one message."""

_EXCERPT_WIDTH = 100
_ALLOWED_WIDTH = 110
_INTEGER_RANGES = {
    FieldDescriptor.TYPE_INT32: "a whole number from -2147483648 to 2147483647",
    FieldDescriptor.TYPE_INT64: "a whole number",
    FieldDescriptor.TYPE_UINT32: "a whole number from 0 to 4294967295",
    FieldDescriptor.TYPE_FLOAT: "a number",
    FieldDescriptor.TYPE_DOUBLE: "a number",
    FieldDescriptor.TYPE_BOOL: "true or false",
    FieldDescriptor.TYPE_STRING: "a text in quotes",
}


def read_net(path: Path) -> caffe_pb2.NetParameter:
    """Read a net definition, text or binary, upgraded to Caffe's current form.

    Raises:
        PrototxtError: The file is missing, unreadable, empty, too long, or does not parse.
        NetError: It parses but its legacy form cannot be upgraded.
    """
    return upgrade_net(_read(Path(path), caffe_pb2.NetParameter(), "net"))


def read_solver(path: Path) -> caffe_pb2.SolverParameter:
    """Read a solver definition, upgraded (``solver_type`` enum to ``type``).

    Raises:
        PrototxtError: As ``read_net``; also when ``type`` and ``solver_type`` are both given.
    """
    return upgrade_solver(_read(Path(path), caffe_pb2.SolverParameter(), "solver"), path=str(path))


def parse_net(text: str, *, path: str = "<text>") -> caffe_pb2.NetParameter:
    """Parse a net's text; ``path`` is what errors call it. Raises as ``read_net``."""
    return upgrade_net(_parse_text(text, caffe_pb2.NetParameter(), path=path, root="net"))


def parse_solver(text: str, *, path: str = "<text>") -> caffe_pb2.SolverParameter:
    """Parse a solver's text; ``path`` is what errors call it. Raises as ``read_solver``."""
    return upgrade_solver(_parse_text(text, caffe_pb2.SolverParameter(), path=path, root="solver"), path=path)


def merge_solver(solver: caffe_pb2.SolverParameter, overrides: str) -> caffe_pb2.SolverParameter:
    """Return a copy of ``solver`` with the fields that ``overrides`` (prototxt text) sets.

    A repeated field given in the overrides replaces the solver's; a message field is merged by the same rule.

    Raises:
        PrototxtError: The overrides do not parse.

    Example:
        >>> solver = parse_solver('base_lr: 0.1 stepvalue: 10 stepvalue: 20')
        >>> list(merge_solver(solver, "stepvalue: 5").stepvalue)
        [5]
    """
    merged = caffe_pb2.SolverParameter()
    merged.CopyFrom(solver)
    _override(merged, parse_solver(overrides, path="<solver overrides>"))
    return merged


def _override(target: Message, source: Message) -> None:
    for descriptor, value in source.ListFields():
        name = descriptor.name
        if descriptor.is_repeated:
            target.ClearField(name)
            getattr(target, name).extend(value)
        elif descriptor.message_type is not None:
            getattr(target, name).SetInParent()
            _override(getattr(target, name), value)
        else:
            setattr(target, name, value)


def format_message(message: Message) -> str:
    """Return the message as prototxt text that Caffe's own parser reads."""
    return str(text_format.MessageToString(message))


def _read(path: Path, message: _M, root: str) -> _M:
    content = _read_bytes(path, root)
    if _looks_binary(content):
        return _parse_binary(content, message, path=str(path), root=root)
    if len(content) > MAX_TEXT_BYTES:
        msg = f"{path}: {len(content):,} bytes of text; a {root} of more than {MAX_TEXT_BYTES:,} bytes is not read"
        raise PrototxtError(msg, path=str(path))
    return _parse_text(_decode(content, path=str(path)), message, path=str(path), root=root)


def _read_bytes(path: Path, root: str) -> bytes:
    try:
        size = path.stat().st_size
        if path.is_dir():
            msg = f"{path}: is a folder; give the {root}'s prototxt file"
            raise PrototxtError(msg, path=str(path))
        if size > MAX_BINARY_BYTES:
            msg = f"{path}: {size:,} bytes; a {root} of more than {MAX_BINARY_BYTES:,} bytes cannot be read"
            raise PrototxtError(msg, path=str(path))
        content = path.read_bytes()
    except FileNotFoundError as error:
        msg = f"{path}: no such file; give the {root}'s prototxt, relative to {Path.cwd()} or absolute"
        raise PrototxtError(msg, path=str(path)) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        msg = f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        raise PrototxtError(msg, path=str(path)) from error
    if not content.strip():
        msg = f"{path}: is empty; a {root}'s prototxt was expected"
        raise PrototxtError(msg, path=str(path))
    return content


def _looks_binary(content: bytes) -> bool:
    """Text has no control bytes but tab, newline, form feed and return; a binary message always has some."""
    return re.search(rb"[\x00-\x08\x0b\x0e-\x1f]", content[:65536]) is not None and not content.startswith(
        (b"\xff\xfe", b"\xfe\xff")
    )


def _decode(content: bytes, *, path: str) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        msg = f"{path}: is UTF-16 text; save it as UTF-8"
        raise PrototxtError(msg, path=path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Caffe's parser takes any bytes in a comment (files with comments in Latin-1 or GBK are common).
        return content.decode("utf-8-sig", errors="replace")


def _parse_binary(content: bytes, message: _M, *, path: str, root: str) -> _M:
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        msg = f"{path}: is neither text nor a binary {message.DESCRIPTOR.name}: {error}"
        raise PrototxtError(msg, path=path) from error
    unknown = len(UnknownFieldSet(message))
    if unknown:
        msg = (
            f"{path}: is not a {root}: read as a binary {message.DESCRIPTOR.name} it has {unknown} fields "
            "that Caffe does not know"
        )
        raise PrototxtError(msg, path=path)
    return message


def _parse_text(text: str, message: _M, *, path: str, root: str) -> _M:
    place = _undecodable(text)
    if place is not None:
        raise _Report(path, text).error(place.start, "bytes that are not UTF-8 text; save the file as UTF-8")
    try:
        # Caffe's messages do not nest in themselves, so the depth is bounded by the declaration.
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise _explain(error, text, _descriptor(message), path=path, root=root) from error
    missing: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]  # stubs lack it
    if missing:
        msg = f"{path}: required but not given: {', '.join(missing)}"
        raise PrototxtError(msg, path=path, allowed=missing)
    return message


def _descriptor(message: Message) -> Descriptor:
    return cast(Descriptor, message.DESCRIPTOR)


def _undecodable(text: str) -> Place | None:
    if "\ufffd" not in text:
        return None
    return next((place for place in scan_prototxt(text).places if "\ufffd" in place.text), None)


@dataclass(frozen=True)
class _Report:
    """Words an error at an offset of a text in the form file:line:column, excerpt with caret, what is allowed."""

    path: str
    text: str

    def error(
        self, offset: int, finding: str, *, width: int = 1, allowed: Sequence[str] = (), found: str = ""
    ) -> PrototxtError:
        line, column = line_and_column(self.text, offset)
        parts = [f"{self.path}:{line}:{column}: {finding}", *self._excerpt(line, column, width)]
        if allowed:
            parts.append(f"  allowed: {_shorten(allowed)}")
        near = did_you_mean(found, allowed) if found else ""
        if near:
            parts.append(f"  {near.removeprefix('; ')}")
        return PrototxtError("\n".join(parts), path=self.path, line=line, column=column, allowed=allowed)

    def _excerpt(self, line: int, column: int, width: int) -> list[str]:
        written = self.text.split("\n", line)[line - 1].rstrip("\r").replace("\t", " ")
        start = max(0, column - 1 - _EXCERPT_WIDTH // 2) if len(written) > _EXCERPT_WIDTH else 0
        shown = written[start : start + _EXCERPT_WIDTH]
        indent = column - 1 - start
        caret = " " * indent + "^" * max(1, min(width, _EXCERPT_WIDTH - indent))
        return [f"{line:5d} | {shown}".rstrip(), f"      | {caret}"]


def _shorten(allowed: Sequence[str]) -> str:
    shown = ""
    for word in allowed:
        longer = f"{shown}, {word}" if shown else word
        if len(longer) > _ALLOWED_WIDTH:
            return f"{shown}, ..."
        shown = longer
    return shown


def _explain(error: text_format.ParseError, text: str, root_type: Descriptor, *, path: str, root: str) -> PrototxtError:
    report = _Report(path, text)
    scan = scan_prototxt(text)
    offset = offset_of(text, error.GetLine() or 1, error.GetColumn() or 1)
    place = scan.at(offset)
    if place is not None:
        descriptor = _message_of(place.block, root_type)
        explained = _explain_place(place, descriptor, report, root) if descriptor is not None else None
        if explained is not None:
            return explained
        repeated = re.search(r'should not have multiple "(\w+)" fields', str(error))
        if repeated:
            finding = f'"{repeated[1]}" {_where(place.block, root, "in")} is given twice; it can be given once'
            return report.error(offset, finding, width=len(place.text))
    unclosed = scan.unclosed()
    if unclosed is not None and offset >= len(text.rstrip()) - 1:
        finding = f'"{unclosed.name}" {_where(unclosed.parent, root, "in")} is never closed: "}}" is missing'
        return report.error(unclosed.start, finding.replace("  ", " "), width=len(unclosed.name))
    return report.error(offset, _plain_reason(error, text, offset), width=len(place.text) if place else 1)


def _plain_reason(error: text_format.ParseError, text: str, offset: int) -> str:
    """Return protobuf's own words without its position, and what stands at the place."""
    reason = re.sub(r"^\d+:\d+ : ", "", str(error)).removesuffix(".")
    reason = re.sub(r"^'.*': ", "", reason, flags=re.DOTALL)
    found = re.match(r"\w+|\S", text[offset : offset + 40])
    return f"{reason[:200]}; found {found[0]!r}" if found else f"{reason[:200]}; found the end of the text"


def _message_of(block: Block, root_type: Descriptor) -> Descriptor | None:
    """Return the message type of a block, None if a name on the way to it is unknown."""
    descriptor: Descriptor | None = root_type
    for name in block.field_path():
        declared = descriptor.fields_by_name.get(name) if descriptor is not None else None
        descriptor = declared.message_type if declared is not None else None
    return descriptor


def _explain_place(place: Place, descriptor: Descriptor, report: _Report, root: str) -> PrototxtError | None:
    declared = descriptor.fields_by_name.get(place.field_name)
    if declared is None:
        allowed = sorted(descriptor.fields_by_name)
        finding = f'unknown field "{place.field_name}" {_where(place.block, root, "in")}'
        return report.error(place.start, finding, width=len(place.text), allowed=allowed, found=place.field_name)
    if place.role != "value" or _value_fits(declared, place.text):
        return None
    allowed = _allowed_values(declared)
    finding = f"{_field_path(place, root)} is {place.text}"
    return report.error(place.start, finding, width=len(place.text), allowed=allowed, found=place.text)


def _value_fits(declared: FieldDescriptor, text: str) -> bool:
    if declared.enum_type is not None:
        return text in declared.enum_type.values_by_name
    if declared.type == FieldDescriptor.TYPE_STRING:
        return text[:1] in "\"'"
    if declared.type == FieldDescriptor.TYPE_BOOL:
        return text in ("true", "false", "True", "False", "t", "f", "0", "1")
    return declared.message_type is not None


def _allowed_values(declared: FieldDescriptor) -> list[str]:
    if declared.enum_type is not None:
        return [value.name for value in declared.enum_type.values]
    return [_INTEGER_RANGES.get(declared.type, "another value")]


def _layer_name(layer: Block) -> str:
    return f'layer "{layer.label}"' if layer.label else f"{layer.name} number {layer.position}"


def _where(block: Block | None, root: str, word: str) -> str:
    """Return ``in convolution_param of layer "conv2"``, ``in layer "conv2"`` or ``in the net``."""
    if block is None or block.parent is None:
        return f"{word} the {root}"
    layer, path = layer_of(block)
    if layer is None:
        return f"{word} {'.'.join(path)} of the {root}"
    return f"{word} {'.'.join(path)} of {_layer_name(layer)}" if path else f"{word} {_layer_name(layer)}"


def _field_path(place: Place, root: str) -> str:
    layer, path = layer_of(place.block)
    owner = _layer_name(layer) if layer is not None else f"the {root}"
    return f"{'.'.join((*path, place.field_name))} of {owner}"
