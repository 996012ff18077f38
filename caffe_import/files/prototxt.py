"""Prototxt files, text or binary, to messages and back; ``prototxt_errors`` says where a text is wrong.

Reading upgrades: what leaves this module is in Caffe's current form (see ``upgrade``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeVar, cast

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from caffe_import.errors import NetError, PrototxtError
from caffe_import.file_access.allowed_roots import may_quote
from caffe_import.file_access.regular_file import open_regular, regular_bytes
from caffe_import.files.prototxt_errors import (
    PrototxtText,
    check_strings,
    explain_parse_error,
    looks_like_caffe,
    missing_field_error,
    without_words,
)
from caffe_import.files.upgrade import NetForm, net_form, solver_upgrades, upgrade_net, upgrade_solver
from caffe_import.proto import caffe_pb2, is_repeated

_M = TypeVar("_M", bound=Message)

MAX_TEXT_BYTES = 8 * 1024 * 1024
"""Longest prototxt read as text. The largest published nets are below 1 MiB; the text parser is slow Python."""

MAX_BINARY_BYTES = 2**31 - 1
"""Protobuf's own bound on one message."""

_LOOKED_AT_BYTES = 65_536


def read_net(path: Path) -> caffe_pb2.NetParameter:
    """Read a net definition, text or binary, upgraded to Caffe's current form.

    Raises:
        PrototxtError: The file is missing, unreadable, empty, too long, or does not parse.
        NetError: It parses but its legacy form cannot be upgraded.
    """
    return _upgraded_net(_read(Path(path), caffe_pb2.NetParameter(), "net"), str(path))


def read_net_form(path: Path) -> NetForm:
    """Return the form of a net in its file, before ``read_net`` upgrades it.

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


def read_text(path: Path) -> str:
    """Return a prototxt's text for showing positions; empty for a binary file. Raises as ``read_net``."""
    content = _read_bytes(path, "net or solver")
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
    text = _decode(content, path=str(path))
    try:
        return _parse_text(text, message, path=str(path), root=root)
    except PrototxtError as error:
        if not may_quote(path):
            reason = "its words are not shown: it lies outside of the allowed folders"
        elif not looks_like_caffe(text):
            reason = "its words are not shown: most are no names of Caffe's fields"
        else:
            raise
        raise without_words(error, root, reason) from None


def _read_bytes(path: Path, root: str) -> bytes:
    try:
        content = _content(path, root)
    except PrototxtError:
        raise
    except IsADirectoryError as error:
        msg = f"{path}: is a folder; give the {root}'s prototxt file"
        raise PrototxtError(msg, path=str(path)) from error
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


def _content(path: Path, root: str) -> bytes:
    """Return the file's bytes; a text is refused by size before reading."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_TEXT_BYTES and not _looks_binary(file.read(_LOOKED_AT_BYTES)):
            msg = f"{path}: {size:,} bytes of text; a {root} of more than {MAX_TEXT_BYTES:,} bytes is not read"
            raise PrototxtError(msg, path=str(path))
    return regular_bytes(path, max_bytes=MAX_BINARY_BYTES)


def _looks_binary(content: bytes) -> bool:
    """Text has no control bytes but tab, newline, form feed and return; a binary message always has some."""
    return re.search(rb"[\x00-\x08\x0b\x0e-\x1f]", content[:_LOOKED_AT_BYTES]) is not None and not content.startswith(
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
    source = PrototxtText(path, text)
    check_strings(source)
    try:
        # Caffe's messages do not nest in themselves, so the depth is bounded by the declaration.
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise explain_parse_error(error, source, cast(Descriptor, message.DESCRIPTOR), root) from error
    missing: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]  # stubs lack it
    if missing:
        raise missing_field_error(missing[0], source, root)
    return message
