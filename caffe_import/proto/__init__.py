"""Caffe's messages: ``caffe.proto`` and what the protobuf compiler makes of it (``make proto``)."""

from __future__ import annotations

from typing import Any


def is_repeated(field: Any) -> bool:
    """Does a field hold a list? protobuf 5 has no ``FieldDescriptor.is_repeated``, 7 warns of ``label``.

    Args:
        field: A ``FieldDescriptor``; which class that is depends on protobuf's backend.

    Example:
        >>> from caffe_import.proto import caffe_pb2
        >>> fields = caffe_pb2.NetParameter.DESCRIPTOR.fields_by_name
        >>> is_repeated(fields["layer"]), is_repeated(fields["name"]), is_repeated(fields["state"])
        (True, False, False)
    """
    return bool(field.default_value == [])
