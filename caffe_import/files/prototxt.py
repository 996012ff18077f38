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

from caffe_import.errors import NetError, PrototxtError, did_you_mean
from caffe_import.files.prototxt_scan import (
    Block,
    Place,
    layer_of,
    line_and_column,
    offset_of,
    scan_prototxt,
)
from caffe_import.files.upgrade import NetForm, net_form, solver_upgrades, upgrade_net, upgrade_solver
from caffe_import.fork_names import fork_of_field
from caffe_import.proto import caffe_pb2, is_repeated

_M = TypeVar("_M", bound=Message)

MAX_TEXT_BYTES = 8 * 1024 * 1024
"""Longest prototxt read as text. The largest published nets are below 1 MiB; the text parser is slow Python."""

MAX_BINARY_BYTES = 2**31 - 1
"""Protobuf's own bound on one message."""

_EXCERPT_WIDTH = 100
_ALLOWED_WIDTH = 110
_WORD_WIDTH = 60
_ESCAPE = re.compile(
    r"""\\(?:(?P<known>[abfnrtv\\"'] | (?![4-7][0-7]{2})[0-7]{1,3} | x[0-9a-fA-F]{1,2} | u[0-9a-fA-F]{4}
        | U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}) | .?)""",
    re.VERBOSE | re.DOTALL,
)
_VALUE_RULES = {
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
    return _upgraded_net(_read(Path(path), caffe_pb2.NetParameter(), "net"), str(path))


def read_net_form(path: Path) -> NetForm:
    """Return the form in which a net stands in its file, before ``read_net`` upgrades it.

    Raises:
        PrototxtError: As ``read_net``.
        NetError: As ``read_net``.
    """
    return net_form(_read(Path(path), caffe_pb2.NetParameter(), "net"))


def read_solver_upgrades(path: Path) -> tuple[str, ...]:
    """Return what ``read_solver`` upgrades in a solver's file, one line per step.

    Raises:
        PrototxtError: As ``read_solver``.
    """
    return solver_upgrades(_read(Path(path), caffe_pb2.SolverParameter(), "solver"))


def read_solver(path: Path) -> caffe_pb2.SolverParameter:
    """Read a solver definition, upgraded (``solver_type`` enum to ``type``).

    Raises:
        PrototxtError: As ``read_net``; also when ``type`` and ``solver_type`` are both given.
    """
    return upgrade_solver(_read(Path(path), caffe_pb2.SolverParameter(), "solver"), path=str(path))


def parse_net(text: str, *, path: str = "<text>") -> caffe_pb2.NetParameter:
    """Parse a net's text; ``path`` is what errors call it. Raises as ``read_net``."""
    return _upgraded_net(_parse_text(text, caffe_pb2.NetParameter(), path=path, root="net"), path)


def parse_solver(text: str, *, path: str = "<text>") -> caffe_pb2.SolverParameter:
    """Parse a solver's text; ``path`` is what errors call it. Raises as ``read_solver``."""
    return upgrade_solver(_parse_text(text, caffe_pb2.SolverParameter(), path=path, root="solver"), path=path)


def _upgraded_net(net: caffe_pb2.NetParameter, path: str) -> caffe_pb2.NetParameter:
    try:
        return upgrade_net(net)
    except NetError as error:
        msg = f"{path}: {error}"
        raise NetError(msg, layer=error.layer) from error


def solver_field_error(
    finding: str,
    field_name: str,
    sources: Sequence[tuple[str, str]],
    *,
    path: str,
    allowed: Sequence[str] = (),
    at_end: bool = False,
) -> PrototxtError:
    """Return the error for a solver's field whose value is refused, with the place where it is written.

    Args:
        finding: What was found and what is allowed.
        field_name: The field.
        sources: (name of the text, text): the one to look in first comes first.
        path: Names the solver where no source has the field.
        allowed: For the error's attribute.
        at_end: Without a source that has the field, show the end of the last source: a line is to be added there.
    """
    for name, text in sources:
        places = [
            place
            for place in scan_prototxt(text).places
            if place.block.parent is None and place.field_name == field_name and place.role == "value"
        ]
        if places:
            return _Report(name, text).error(places[-1].start, finding, width=len(places[-1].text), listed=allowed)
    if at_end and sources and sources[-1][1].strip():
        name, text = sources[-1]
        last_line = text.rstrip().rpartition("\n")[2].lstrip()
        return _Report(name, text).error(len(text.rstrip()) - len(last_line), finding, width=len(last_line))
    return PrototxtError(f"{path}: {finding}", path=path, allowed=allowed)


def read_text(path: Path) -> str:
    """Return a prototxt's text for showing places in it; empty for a binary one. Raises as ``read_net``."""
    content = _read_bytes(path, "prototxt")
    return "" if _looks_binary(content) else _decode(content, path=str(path))


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
        if is_repeated(descriptor):
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
    _check_strings(text, path)
    try:
        # Caffe's messages do not nest in themselves, so the depth is bounded by the declaration.
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise _explain(error, text, _descriptor(message), path=path, root=root) from error
    missing: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]  # stubs lack it
    if missing:
        raise _missing_field(missing[0], text, path=path, root=root)
    return message


def _descriptor(message: Message) -> Descriptor:
    return cast(Descriptor, message.DESCRIPTOR)


def _check_strings(text: str, path: str) -> None:
    """Refuse what protobuf's C++ parser refuses in quotes and its Python one lets pass with a warning or mangles."""
    if "\ufffd" not in text and "\\" not in text:
        return
    for place in scan_prototxt(text).places:
        if "\ufffd" in place.text:
            raise _Report(path, text).error(place.start, "bytes that are not UTF-8 text; save the file as UTF-8")
        if place.text[0] not in "\"'":
            continue
        for escape in _ESCAPE.finditer(place.text):
            if escape["known"] is None:
                finding = f'unknown escape "{escape[0]}" in quotes'
                remedy = "write a backslash as \\\\, in paths better /"
                error = _Report(path, text).error
                raise error(place.start + escape.start(), finding, width=len(escape[0]), remedy=remedy)


@dataclass(frozen=True)
class _Report:
    """Words an error at an offset of a text in the form file:line:column, excerpt with caret, what is allowed."""

    path: str
    text: str

    def error(
        self,
        offset: int,
        finding: str,
        *,
        width: int = 1,
        allowed: Sequence[str] = (),
        found: str = "",
        remedy: str = "",
        listed: Sequence[str] = (),
    ) -> PrototxtError:
        """Return the error; ``allowed`` is shown, ``listed`` (already in the finding) only kept as an attribute."""
        line, column = line_and_column(self.text, offset)
        parts = [f"{self.path}:{line}:{column}: {finding}", *self._excerpt(line, column, width)]
        if allowed:
            parts.append(f"  allowed: {_shorten(allowed)}")
        near = did_you_mean(found, allowed) if len(found) <= _WORD_WIDTH else ""
        parts += [f"  {hint}" for hint in (near.removeprefix("; "), remedy) if hint]
        # A lone surrogate (from JSON) would make the message itself unprintable.
        message = "\n".join(parts).encode("utf-8", "backslashreplace").decode("utf-8")
        return PrototxtError(message, path=self.path, line=line, column=column, allowed=[*allowed, *listed])

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


def _word(text: str) -> str:
    return text if len(text) <= _WORD_WIDTH else f"{text[:_WORD_WIDTH]}..."


def _explain(error: text_format.ParseError, text: str, root_type: Descriptor, *, path: str, root: str) -> PrototxtError:
    report = _Report(path, text)
    scan = scan_prototxt(text)
    offset = offset_of(text, error.GetLine() or 1, error.GetColumn() or 1)
    reason = _plain_reason(error)
    unclosed = scan.unclosed()
    if unclosed is not None and reason in ('expected "}"', 'expected ">"'):
        finding = f'"{unclosed.name}"{_where(unclosed.parent, root)} is never closed: "}}" is missing'
        return report.error(unclosed.start, finding, width=len(unclosed.name))
    place = scan.at(offset)
    if place is not None:
        explained = _explain_place(place, root_type, report, root, reason)
        if explained is not None:
            return explained
    mark = re.match(r"\w+|\S", text[offset : offset + _WORD_WIDTH])
    found = _word(place.text) if place else mark[0] if mark else "the end of the text"
    finding = f"{reason}, found {found}"
    if found in ("}", ">") and reason == "expected a field name":
        finding = f'a "{found}" too many, or one too few before it'
    return report.error(offset, finding, width=len(place.text) if place else 1)


def _plain_reason(error: text_format.ParseError) -> str:
    """Return protobuf's own words without its position and its quote of the text, in our way of writing."""
    reason = re.sub(r"^\d+:\d+ : ('.*?': )?", "", str(error), flags=re.DOTALL).removesuffix(".")
    if reason.startswith("Expected identifier"):
        return "expected a field name"
    if "ending quote" in reason:
        return "a text without its ending quote"
    if "codec can't" in reason:
        return "a text whose backslash escapes do not give UTF-8"
    return _word(re.sub(r"^Expected\b", "expected", reason))


def _message_of(block: Block, root_type: Descriptor) -> Descriptor | None:
    """Return the message type of a block, None if a name on the way to it is unknown."""
    descriptor: Descriptor | None = root_type
    for name in block.field_path():
        declared = descriptor.fields_by_name.get(name) if descriptor is not None else None
        descriptor = declared.message_type if declared is not None else None
    return descriptor


def _explain_place(
    place: Place, root_type: Descriptor, report: _Report, root: str, reason: str
) -> PrototxtError | None:
    descriptor = _message_of(place.block, root_type)
    if descriptor is None or not place.field_name:
        return None
    declared = descriptor.fields_by_name.get(place.field_name)
    width = len(place.text)
    if declared is None:
        where = _where(place.block, root)
        if fork := fork_of_field(descriptor.name, place.field_name):
            finding = f"{place.field_name}{where} belongs to {fork}, not to Caffe 1.0; not supported here"
            return report.error(place.start, finding, width=width)
        finding = f'unknown field "{_word(place.field_name)}"{where}'
        allowed = sorted(descriptor.fields_by_name)
        remedy = _other_root(place, root) or _missing_brace(place, root_type)
        return report.error(place.start, finding, width=width, allowed=allowed, found=place.field_name, remedy=remedy)
    if "should not have multiple" in reason:
        finding = f'"{place.field_name}"{_where(place.block, root)} is given twice; it can be given once'
        return report.error(place.start, finding, width=width)
    if place.role != "value" or _value_fits(declared, place.text):
        return None
    allowed = _allowed_values(declared)
    finding = f"{_field_path(place, root)} is {_word(place.text)}"
    return report.error(place.start, finding, width=width, allowed=allowed, found=place.text)


def _other_root(place: Place, root: str) -> str:
    """Return a hint if the text is a solver where a net was expected, or the other way round."""
    others = {"net": caffe_pb2.SolverParameter.DESCRIPTOR, "solver": caffe_pb2.NetParameter.DESCRIPTOR}
    if place.block.parent is not None or place.field_name not in others[root].fields_by_name:
        return ""
    other = "solver" if root == "net" else "net"
    return f"this looks like a {other}'s prototxt; a {root}'s was expected"


def _missing_brace(place: Place, root_type: Descriptor) -> str:
    """Return a hint if the field belongs to the root, so that a block before it was probably left open."""
    if place.block.parent is None or place.field_name not in ("layer", "layers"):
        return ""
    return 'a "}" is missing before it' if place.field_name in root_type.fields_by_name else ""


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
    return [_VALUE_RULES[declared.type]]


def _layer_name(layer: Block) -> str:
    return f'layer "{layer.label}"' if layer.label else f"{layer.name} number {layer.position}"


def _where(block: Block | None, root: str) -> str:
    """Return `` in convolution_param of layer "conv2"``, `` in layer "conv2"`` or `` in the net``."""
    if block is None or block.parent is None:
        return f" in the {root}"
    layer, path = layer_of(block)
    if layer is None:
        return f" in {'.'.join(path)} of the {root}"
    return f" in {'.'.join(path)} of {_layer_name(layer)}" if path else f" in {_layer_name(layer)}"


def _field_path(place: Place, root: str) -> str:
    layer, path = layer_of(place.block)
    owner = _layer_name(layer) if layer is not None else f"the {root}"
    return f"{'.'.join((*path, place.field_name))} of {owner}"


def _missing_field(missing: str, text: str, *, path: str, root: str) -> PrototxtError:
    """Word a required field that is not given; ``missing`` is protobuf's path: ``layer[0].clip_param.max``."""
    *outer, name = missing.split(".")
    wanted = [(step.partition("[")[0], int(step.partition("[")[2].rstrip("]") or 0) + 1) for step in outer]
    block = next(
        (b for b in scan_prototxt(text).blocks if [(step.name, step.position) for step in b.path()] == wanted), None
    )
    if block is None:
        return PrototxtError(f"{path}: {missing} is required but not given", path=path, allowed=[name])
    finding = f'"{name}"{_where(block, root)} is required but not given'
    return _Report(path, text).error(block.start, finding, width=len(block.name), listed=[name])
